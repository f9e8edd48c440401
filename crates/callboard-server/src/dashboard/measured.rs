//! The figures of a recorder, as pages read them. Pure.

use std::collections::BTreeMap;

/// Figures as Prometheus reads them: a name and the value of its first label, with a number.
pub(super) struct Figures<'t>(BTreeMap<(&'t str, &'t str), f64>);

impl<'t> Figures<'t> {
    pub(super) fn read(text: &'t str) -> Self {
        let mut figures = BTreeMap::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let Some((series, value)) = line.rsplit_once(' ') else { continue };
            let (name, labels) = series.split_once('{').unwrap_or((series, ""));
            let label =
                labels.split_once("=\"").and_then(|(_, rest)| rest.split_once('"')).map_or("", |(label, _)| label);
            let value: f64 = value.parse().unwrap_or_default();
            if !labels.contains("le=\"") {
                *figures.entry((name, label)).or_default() += value;
            }
        }
        Self(figures)
    }

    pub(super) fn value(&self, name: &str, label: &str) -> f64 {
        self.0.get(&(name, label)).copied().unwrap_or_default()
    }

    /// The values of a name, the largest first.
    pub(super) fn by_label(&self, name: &str) -> Vec<(&'t str, f64)> {
        let of_name = self.0.iter().filter(|((own, _), _)| *own == name);
        let mut values: Vec<_> = of_name.map(|((_, label), value)| (*label, *value)).collect();
        values.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        values
    }

    pub(super) fn sum(&self, name: &str) -> f64 {
        self.by_label(name).iter().map(|(_, value)| value).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_as_prometheus_reads_them() {
        let text = "# HELP a x\na_total{agent=\"one\"} 2\na_total{agent=\"two\"} 3.5\nb_bucket{agent=\"one\",le=\"1\"} 9\nb_sum 4\nwrong\n";
        let figures = Figures::read(text);
        assert_eq!(figures.by_label("a_total"), [("two", 3.5), ("one", 2.0)]);
        assert_eq!([figures.sum("a_total"), figures.value("b_sum", ""), figures.sum("b_bucket")], [5.5, 4.0, 0.0]);
    }
}
