//! The rooms import only what ARCHITECTURE.md allows them to.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Each room with the rooms that it may import, as in the table of ARCHITECTURE.md. Everything may import the first two.
fn table() -> BTreeMap<String, BTreeSet<String>> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let rows = text.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| `")?.split('|');
        let room = cells.next()?.trim().trim_end_matches('`').to_owned();
        let allowed = cells.next()?.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        Some((room, allowed))
    });
    rows.collect()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The room of a path such as `supervision/runs/step.rs` or `supervision::runs::step`.
fn room(path: &str) -> Option<String> {
    let mut parts = path.split(['/', ':']).filter(|part| !part.is_empty());
    let first = parts.next()?.trim_end_matches(".rs");
    match first {
        "supervision" => {
            let second = parts.next().unwrap_or_default();
            ["runs", "tree"].contains(&second).then(|| format!("supervision::{second}"))
        }
        "lib" | "error" | "prelude" => None,
        name => Some(name.to_owned()),
    }
}

/// Whether it holds tests alone, or the reference model of a rule.
fn is_test(path: &Path) -> bool {
    path.ends_with("tests.rs") || path.ends_with("model.rs")
}

fn sources(folder: &Path, files: &mut Vec<std::path::PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") && !is_test(&path) {
            files.push(path);
        }
    }
}

/// The `crate::…` paths of a file, outside its tests and comments; grouped imports are split.
fn imports(text: &str) -> Vec<String> {
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    let code: String = code.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
    code.match_indices("crate::")
        .flat_map(|(start, found)| {
            let rest = &code[start + found.len()..];
            match rest.strip_prefix('{') {
                Some(group) => {
                    group.split('}').next().unwrap_or_default().split(',').map(|part| part.trim().to_owned()).collect()
                }
                None => {
                    let path = rest.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')).next();
                    vec![path.unwrap_or_default().to_owned()]
                }
            }
        })
        .collect()
}

#[test]
fn rooms_import_only_what_the_table_allows() {
    let table = table();
    assert!(table.len() >= 7, "the table of ARCHITECTURE.md was not found: {table:?}");
    let src = root().join("src");
    let mut files = Vec::new();
    sources(&src, &mut files);
    let mut wrong = Vec::new();
    for file in files {
        let name = file.strip_prefix(&src).unwrap().to_string_lossy().into_owned();
        let Some(own) = room(&name) else { continue };
        let Some(allowed) = table.get(&own) else {
            wrong.push(format!("{name}: room {own} is not in the table"));
            continue;
        };
        let foreign = imports(&fs::read_to_string(&file).unwrap()).into_iter().filter_map(|path| room(&path));
        for import in foreign.filter(|import| *import != own && !["env", "messages"].contains(&import.as_str())) {
            if !allowed.contains(&import) && !allowed.contains("all") {
                wrong.push(format!("{name} imports {import}; {own} may import {allowed:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
