//! The layout of one block: boxes in layers from top to bottom, each below those that it comes after. All input and output are
//! whole numbers of pixels, so the same graph always has the same layout.

/// Free space between two boxes of a layer.
const BESIDE: i32 = 28;
/// Free space between two layers, without labels.
const BETWEEN: i32 = 46;
/// The height of a label.
pub(super) const LABEL: i32 = 15;
/// The width that a line takes that passes through a layer.
const BEND: i32 = 6;
/// How often the order and the positions within layers are improved, down and up again.
const SWEEPS: usize = 6;
/// The number of lanes beside the layers, for lines that are too long to pass through the layers.
const LANES: i32 = 12;
const LANE: i32 = 9;
/// The value of 1 for positions that are compared as fractions.
const ONE: i64 = 1 << 20;

/// A box to be placed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    pub(super) width: i32,
    pub(super) height: i32,
    /// The least width of the space for it: labels are above it.
    pub(super) least: i32,
    pub(super) labels: i32,
}

/// A line to be drawn downwards from one box to another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    pub(super) from: usize,
    pub(super) to: usize,
}

/// The positions of boxes, labels and lines.
#[derive(Debug)]
pub(super) struct Layout {
    /// The upper left corner of each box.
    pub(super) corners: Vec<(i32, i32)>,
    /// For each box, the end of the space for its lowest label.
    pub(super) labels: Vec<i32>,
    /// For each link the points of its line: straight from the first to the second, curved to the third, and so on in turn.
    pub(super) lines: Vec<Vec<(i32, i32)>>,
    pub(super) width: i32,
    pub(super) height: i32,
}

/// A box, or the point at which a line passes through a layer.
#[derive(Debug)]
struct Cell {
    layer: usize,
    width: i32,
    above: Vec<usize>,
    below: Vec<usize>,
    /// The middle.
    x: i32,
    /// Its position in its layer, from 0 to [`ONE`].
    rank: i64,
}

/// Places boxes; the links must have no cycle.
pub(super) fn lay_out(items: &[Item], links: &[Link]) -> Layout {
    let layer_of = longest_paths(items.len(), links);
    let mut cells: Vec<Cell> = Vec::with_capacity(items.len());
    let cell = |layer, width| Cell { layer, width, above: Vec::new(), below: Vec::new(), x: 0, rank: 0 };
    cells.extend(items.iter().zip(&layer_of).map(|(item, layer)| cell(*layer, item.width.max(item.least))));
    let paths = paths_through(&mut cells, links, &layer_of);
    let count = layer_of.iter().max().map_or(0, |last| last + 1);
    let mut layers: Vec<Vec<usize>> = vec![Vec::new(); count];
    for (position, cell) in cells.iter().enumerate() {
        layers[cell.layer].push(position);
    }
    put_in_order(&mut cells, &mut layers);
    put_beside(&mut cells, &layers);

    let left = cells.iter().map(|cell| cell.x - cell.width / 2).min().unwrap_or(0);
    for cell in &mut cells {
        cell.x -= left;
    }
    let mut width = cells.iter().map(|cell| cell.x + (cell.width + 1) / 2).max().unwrap_or(0);
    let (bands, height) = bands(items, &layer_of, count);
    let corner = |position: usize| {
        let (item, (top, bottom)) = (items[position], bands[layer_of[position]]);
        (cells[position].x - item.width / 2, top + (bottom - top - item.height) / 2)
    };
    let corners: Vec<(i32, i32)> = (0..items.len()).map(corner).collect();

    // Lines at one box are in the order of their targets, so that they do not cross there.
    let lanes: Vec<Option<i32>> = lanes(&paths, width);
    width = lanes.iter().flatten().map(|lane| lane + LANE).max().unwrap_or(width);
    let turn = |link: usize, is_first: bool| match (&paths[link], lanes[link]) {
        (Some(path), _) => {
            let bend = if is_first { path.first() } else { path.last() };
            let other = if is_first { links[link].to } else { links[link].from };
            cells[bend.copied().unwrap_or(other)].x
        }
        (None, lane) => lane.unwrap_or_default(),
    };
    let outs = ports(items, links.iter().map(|link| link.from), |link| turn(link, true), &cells);
    let ins = ports(items, links.iter().map(|link| link.to), |link| turn(link, false), &cells);
    let mut lines = Vec::with_capacity(links.len());
    for (position, link) in links.iter().enumerate() {
        let (from, to) = (layer_of[link.from], layer_of[link.to]);
        let (out, into) = (outs[position], ins[position]);
        let mut line = vec![(out, corners[link.from].1 + items[link.from].height), (out, bands[from].1)];
        match (&paths[position], lanes[position]) {
            (Some(path), _) => {
                for bend in path {
                    let Cell { x, layer, .. } = cells[*bend];
                    line.extend([(x, bands[layer].0), (x, bands[layer].1)]);
                }
            }
            (None, lane) => {
                let x = lane.unwrap_or_default();
                line.extend([(x, bands[from + 1].0), (x, bands[to - 1].1)]);
            }
        }
        line.extend([(into, bands[to].0), (into, corners[link.to].1)]);
        lines.push(line);
    }
    let labels = layer_of.iter().map(|layer| bands[*layer].0).collect();
    Layout { corners, labels, lines, width, height }
}

/// For each box, the number of links on the longest path to it.
fn longest_paths(boxes: usize, links: &[Link]) -> Vec<usize> {
    let mut left = vec![0_usize; boxes];
    let mut outs: Vec<Vec<usize>> = vec![Vec::new(); boxes];
    for link in links {
        left[link.to] += 1;
        outs[link.from].push(link.to);
    }
    let mut layers = vec![0; boxes];
    let mut free: Vec<usize> = (0..boxes).filter(|position| left[*position] == 0).collect();
    while let Some(from) = free.pop() {
        for to in &outs[from] {
            layers[*to] = layers[*to].max(layers[from] + 1);
            left[*to] -= 1;
            if left[*to] == 0 {
                free.push(*to);
            }
        }
    }
    layers
}

/// Gives links points in the layers that they pass, short links first, as long as the number of points stays in proportion to the
/// graph. The remaining ones are `None`.
fn paths_through(cells: &mut Vec<Cell>, links: &[Link], layer_of: &[usize]) -> Vec<Option<Vec<usize>>> {
    let mut paths: Vec<Option<Vec<usize>>> = vec![None; links.len()];
    let mut left = 4 * (layer_of.len() + links.len());
    let passed = |link: &Link| layer_of[link.to].saturating_sub(layer_of[link.from] + 1);
    let mut by_length: Vec<usize> = (0..links.len()).collect();
    by_length.sort_by_key(|position| passed(&links[*position]));
    for position in by_length {
        let (link, bends) = (links[position], passed(&links[position]));
        if bends > left {
            break;
        }
        left -= bends;
        let mut path = Vec::with_capacity(bends);
        let mut above = link.from;
        for layer in layer_of[link.from] + 1..layer_of[link.to] {
            let bend = cells.len();
            cells.push(Cell { layer, width: BEND, above: vec![above], below: Vec::new(), x: 0, rank: 0 });
            cells[above].below.push(bend);
            path.push(bend);
            above = bend;
        }
        cells[above].below.push(link.to);
        cells[link.to].above.push(above);
        paths[position] = Some(path);
    }
    paths
}

/// Orders the cells of each layer so that connected ones are below each other and few lines cross.
fn put_in_order(cells: &mut [Cell], layers: &mut [Vec<usize>]) {
    for layer in layers.iter() {
        number(cells, layer);
    }
    for _ in 0..SWEEPS {
        for layer in layers.iter_mut().skip(1) {
            sort(cells, layer, |cell| &cell.above);
        }
        for layer in layers.iter_mut().rev().skip(1) {
            sort(cells, layer, |cell| &cell.below);
        }
    }
}

fn sort(cells: &mut [Cell], layer: &mut [usize], beside: impl Fn(&Cell) -> &Vec<usize>) {
    let middle = |position: &usize| {
        let cell = &cells[*position];
        mean(beside(cell).iter().map(|other| cells[*other].rank)).unwrap_or(cell.rank)
    };
    layer.sort_by_cached_key(middle);
    number(cells, layer);
}

fn number(cells: &mut [Cell], layer: &[usize]) {
    let all = i64::try_from(layer.len()).unwrap_or(i64::MAX);
    for (place, position) in (0..).zip(layer) {
        cells[*position].rank = (2 * place + 1) * ONE / (2 * all);
    }
}

fn mean(numbers: impl Iterator<Item = i64>) -> Option<i64> {
    let (sum, count) = numbers.fold((0, 0), |(sum, count), number| (sum + number, count + 1));
    (count > 0).then(|| sum / count)
}

/// Moves each cell as near to the middle of its connected cells as the others in its layer allow.
fn put_beside(cells: &mut [Cell], layers: &[Vec<usize>]) {
    for layer in layers {
        settle(cells, layer, |_| Some(0));
    }
    let middle =
        |cells: &[Cell], others: &mut dyn Iterator<Item = &usize>| mean(others.map(|other| i64::from(cells[*other].x)));
    for _ in 0..SWEEPS {
        for layer in layers.iter().skip(1) {
            settle(cells, layer, |(cells, cell)| middle(cells, &mut cell.above.iter()));
        }
        for layer in layers.iter().rev().skip(1) {
            settle(cells, layer, |(cells, cell)| middle(cells, &mut cell.below.iter()));
        }
    }
    for layer in layers {
        settle(cells, layer, |(cells, cell)| middle(cells, &mut cell.above.iter().chain(&cell.below)));
    }
}

/// Puts the cells of a layer side by side, each as near to its wanted position as possible: overlapping cells move together, and
/// share the displacement (least squares).
fn settle(cells: &mut [Cell], layer: &[usize], wish: impl Fn((&[Cell], &Cell)) -> Option<i64>) {
    /// Cells that touch: the sum of their wishes, each less its distance from the layer's first, and their number.
    struct Cluster {
        sum: i64,
        count: i64,
    }
    let mut offsets = Vec::with_capacity(layer.len());
    let mut clusters: Vec<Cluster> = Vec::new();
    let (mut offset, mut before) = (0, 0);
    for (place, position) in layer.iter().enumerate() {
        let cell = &cells[*position];
        if place > 0 {
            offset += i64::from((before + 1) / 2 + (cell.width + 1) / 2 + BESIDE);
        }
        before = cell.width;
        offsets.push(offset);
        let wished = wish((cells, cell)).unwrap_or(i64::from(cell.x));
        let mut last = Cluster { sum: wished - offset, count: 1 };
        while let Some(earlier) = clusters.pop_if(|earlier| earlier.sum * last.count > last.sum * earlier.count) {
            last = Cluster { sum: last.sum + earlier.sum, count: last.count + earlier.count };
        }
        clusters.push(last);
    }
    let shared = clusters.iter().flat_map(|cluster| {
        let count = usize::try_from(cluster.count).unwrap_or_default();
        std::iter::repeat_n(cluster.sum.div_euclid(cluster.count), count)
    });
    for ((position, offset), shared) in layer.iter().zip(offsets).zip(shared) {
        cells[*position].x = i32::try_from(shared + offset).unwrap_or(i32::MAX);
    }
}

/// The upper and lower edge of each layer, and the height of all.
fn bands(items: &[Item], layer_of: &[usize], count: usize) -> (Vec<(i32, i32)>, i32) {
    let mut sizes = vec![(0, 0); count];
    for (item, layer) in items.iter().zip(layer_of) {
        let (height, labels) = sizes[*layer];
        sizes[*layer] = (item.height.max(height), item.labels.max(labels));
    }
    let mut bottom = 0;
    let bands = sizes.into_iter().enumerate().map(|(layer, (height, labels))| {
        let top = if layer == 0 { 0 } else { bottom + BETWEEN + labels * LABEL };
        bottom = top + height;
        (top, bottom)
    });
    let bands: Vec<(i32, i32)> = bands.collect();
    (bands, bottom)
}

/// The lanes beside the layers for the lines that have no path through them.
fn lanes(paths: &[Option<Vec<usize>>], right: i32) -> Vec<Option<i32>> {
    let mut next = 0;
    let lane = |path: &Option<Vec<usize>>| {
        path.is_none().then(|| {
            next = next % LANES + 1;
            right + next * LANE
        })
    };
    paths.iter().map(lane).collect()
}

/// The point on its box at which each line begins, or ends.
fn ports(
    items: &[Item],
    boxes: impl Iterator<Item = usize>,
    leads_to: impl Fn(usize) -> i32,
    cells: &[Cell],
) -> Vec<i32> {
    let mut at: Vec<Vec<usize>> = vec![Vec::new(); items.len()];
    let mut count = 0;
    for (link, own) in boxes.enumerate() {
        at[own].push(link);
        count += 1;
    }
    let mut ports = vec![0; count];
    for (own, mut links) in at.into_iter().enumerate() {
        links.sort_by_cached_key(|link| leads_to(*link));
        let all = i32::try_from(links.len()).unwrap_or(i32::MAX);
        let free = (items[own].width - 24).max(0);
        let step = if all > 1 { (free / (all - 1)).min(18) } else { 0 };
        for (place, link) in (0..).zip(links) {
            ports[link] = cells[own].x + (2 * place - (all - 1)) * step / 2;
        }
    }
    ports
}
