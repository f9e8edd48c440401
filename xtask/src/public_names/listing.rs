//! From rustdoc's JSON to the names of a crate's items.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashSet};

use serde_json::Value;

/// A module whose names are listed under it only if they have no other path.
const PRELUDE: &str = "prelude";

/// A path by which an item can be named; the best is the least.
type Rank = (bool, usize, Vec<String>);

/// Each item that can be reached over public modules and re-exports, once, as `path (kind)`: under its shortest path, and
/// of several as short the first by name. What belongs to an item (fields, variants, methods) is not listed, nor what is
/// on items of other crates.
///
/// # Errors
/// JSON that is not rustdoc's, or of a version of its format in which other words mean this.
pub(super) fn names(documentation: &Value) -> Result<Vec<String>, String> {
    let root = documentation["root"].as_u64().ok_or("it has no root")?;
    let name = documentation["index"][root.to_string()]["name"].as_str().ok_or("its root has no name")?;
    let mut walk = Walk { documentation, waiting: BinaryHeap::new(), globs: HashSet::new() };
    walk.waiting.push(Reverse((rank(vec![name.to_owned()]), root)));
    let mut found: BTreeMap<u64, (Vec<String>, &str)> = BTreeMap::new();
    while let Some(Reverse(((_, _, path), id))) = walk.waiting.pop() {
        let Some(kind) = walk.kind(id).filter(|_| !found.contains_key(&id)) else { continue };
        found.insert(id, (path.clone(), kind));
        walk.add_items_of(id, &path);
    }
    found.remove(&root);
    if found.is_empty() {
        let format = &documentation["format_version"];
        return Err(format!("no names were found; the format of rustdoc's JSON, which is {format}, may have changed"));
    }
    let mut names: Vec<String> =
        found.into_values().map(|(path, kind)| format!("{} ({kind})", path.join("::"))).collect();
    names.sort();
    Ok(names)
}

fn rank(path: Vec<String>) -> Rank {
    (path.iter().any(|part| part == PRELUDE), path.len(), path)
}

struct Walk<'a> {
    documentation: &'a Value,
    /// Items by the path that led to them, best first.
    waiting: BinaryHeap<Reverse<(Rank, u64)>>,
    /// The modules whose items were added under another module's path.
    globs: HashSet<(u64, Vec<String>)>,
}

impl<'a> Walk<'a> {
    fn inner(&self, id: u64) -> &'a Value {
        &self.documentation["index"][id.to_string()]["inner"]
    }

    /// What an item is in the language, or `None` for what is not listed.
    fn kind(&self, id: u64) -> Option<&'a str> {
        let own = self.inner(id).as_object().and_then(|inner| inner.keys().next());
        // An item of another crate has no entry but this one.
        let kind = match own {
            Some(kind) => kind,
            None => self.documentation["paths"][id.to_string()]["kind"].as_str()?,
        };
        match kind {
            "function" => Some("fn"),
            "constant" => Some("const"),
            "type_alias" => Some("type"),
            "trait_alias" => Some("trait alias"),
            "proc_macro" | "proc_attribute" | "proc_derive" => Some("macro"),
            "module" | "struct" | "enum" | "union" | "trait" | "static" | "macro" => Some(kind),
            _ => None,
        }
    }

    fn add_items_of(&mut self, module: u64, path: &[String]) {
        let items = self.inner(module)["module"]["items"].as_array();
        for id in items.into_iter().flatten().filter_map(Value::as_u64) {
            let item = &self.documentation["index"][id.to_string()];
            if item["visibility"] != "public" {
                continue;
            }
            let import = &item["inner"]["use"];
            match (import["id"].as_u64(), import["is_glob"].as_bool()) {
                (Some(of), Some(true)) => {
                    if self.globs.insert((of, path.to_vec())) {
                        self.add_items_of(of, path);
                    }
                }
                (Some(of), _) => self.add(of, path, &import["name"]),
                (None, _) => self.add(id, path, &item["name"]),
            }
        }
    }

    fn add(&mut self, id: u64, path: &[String], name: &Value) {
        if let Some(name) = name.as_str() {
            let path = path.iter().cloned().chain([name.to_owned()]).collect();
            self.waiting.push(Reverse((rank(path), id)));
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use serde_json::{Value, json};

    use super::names;

    fn item(name: &str, inner: Value) -> Value {
        json!({ "name": name, "visibility": "public", "inner": inner })
    }

    fn import(name: &str, id: u64, is_glob: bool) -> Value {
        let import = json!({ "use": { "source": name, "name": name, "id": id, "is_glob": is_glob } });
        json!({ "name": null, "visibility": "public", "inner": import })
    }

    fn module(name: &str, items: &[u64]) -> Value {
        item(name, json!({ "module": { "items": items } }))
    }

    fn documentation(index: Value) -> Value {
        let paths = json!({ "90": { "crate_id": 7, "path": ["other", "Far"], "kind": "trait" } });
        json!({ "format_version": 57, "root": 0, "index": index, "paths": paths })
    }

    #[test]
    fn an_item_is_listed_once_under_its_shortest_path() {
        let index = json!({
            "0": module("it", &[1, 2, 3]),
            "1": module("a", &[4]),
            "2": module("z", &[10, 6]),
            "3": import("A", 11, false),
            "4": module("deep", &[10, 11]),
            "6": import("again", 12, false),
            "10": item("B", json!({ "enum": {} })),
            "11": item("A", json!({ "struct": {} })),
            "12": item("f", json!({ "function": {} })),
        });
        let expected =
            ["it::A (struct)", "it::a (module)", "it::a::deep (module)", "it::z (module)", "it::z::B (enum)"];
        let listed = names(&documentation(index)).unwrap();
        assert_eq!(listed, [&expected[..], &["it::z::again (fn)"]].concat());
    }

    #[test]
    fn a_prelude_has_only_what_has_no_other_path() {
        let index = json!({
            "0": module("it", &[1, 2]),
            "1": module("prelude", &[3, 4]),
            "2": module("far", &[5]),
            "3": import("A", 10, false),
            "4": import("B", 11, false),
            "5": module("deep", &[10]),
            "10": item("A", json!({ "struct": {} })),
            "11": item("B", json!({ "struct": {} })),
        });
        let expected = ["it::far (module)", "it::far::deep (module)", "it::far::deep::A (struct)"];
        let expected = [&expected[..], &["it::prelude (module)", "it::prelude::B (struct)"]].concat();
        assert_eq!(names(&documentation(index)).unwrap(), expected);
    }

    #[test]
    fn globs_are_followed_and_other_crates_and_private_items_are_distinguished() {
        let index = json!({
            "0": module("it", &[1, 2, 3, 4]),
            "1": import("hidden", 5, true),
            "2": import("Far", 90, false),
            "3": { "name": "p", "visibility": "crate", "inner": { "struct": {} } },
            "4": import("Variants", 11, true),
            "5": module("hidden", &[10, 6]),
            "6": import("itself", 5, true),
            "10": item("A", json!({ "type_alias": {} })),
            "11": item("Variants", json!({ "enum": { "variants": [12] } })),
            "12": item("V", json!({ "variant": {} })),
        });
        assert_eq!(names(&documentation(index)).unwrap(), ["it::A (type)", "it::Far (trait)"]);
    }

    #[test]
    fn a_format_in_which_no_names_are_found_is_an_error() {
        let index =
            json!({ "0": { "name": "it", "visibility": "public", "inner": { "container": { "items": [1] } } } });
        let error = names(&documentation(index)).unwrap_err();
        assert!(error.contains("which is 57"), "{error}");
    }
}
