//! Corrects findings by what other files say about a file: which modules are private and which hold tests (Rust).

use std::collections::{HashMap, HashSet};

use super::measurement::Measurement;
use crate::findings::{Finding, Kind, Severity};
use crate::outlining::Module;

/// What the declarations above a file make of it.
#[derive(Clone, Copy, Default)]
struct Standing {
    is_hidden: bool,
    is_test: bool,
}

/// Drops findings that do not hold once all files are known: undocumented items that nothing makes public, and whatever
/// tests may do in a module that another file declares under `#[cfg(test)]`.
pub(crate) fn settle(measurements: &mut [Measurement]) {
    let declared: HashMap<String, (String, Module)> = measurements
        .iter()
        .flat_map(|parent| parent.modules.iter().map(move |module| (parent, module)))
        .flat_map(|(parent, module)| {
            let all_of_it = format!("{}::*", module.name);
            let is_public = module.is_public || parent.reexports.contains(&all_of_it);
            let module = Module { is_public, ..module.clone() };
            files_of(&parent.file, &module).map(|file| (file, (parent.file.clone(), module.clone())))
        })
        .collect();
    let reexported: HashSet<String> = measurements.iter().flat_map(|file| file.reexports.iter().cloned()).collect();
    for measurement in measurements {
        let standing = standing(&measurement.file, &declared);
        if standing.is_test && !measurement.is_test {
            measurement.is_test = true;
            measurement.findings.retain(|finding| !matches!(finding.kind, Kind::Panic | Kind::Undocumented));
            measurement.findings.iter_mut().for_each(|finding| finding.severity = Severity::Low);
        }
        if standing.is_hidden {
            let is_reachable = |finding: &Finding| {
                let item = finding.subject.split("::").next().unwrap_or_default();
                finding.kind != Kind::Undocumented || reexported.contains(item)
            };
            measurement.findings.retain(is_reachable);
        }
    }
}

/// Where the code of a module that `parent` declares may lie.
fn files_of(parent: &str, module: &Module) -> [String; 2] {
    let (folder, file) = parent.rsplit_once('/').map_or(("", parent), |(folder, file)| (folder, file));
    let own = match file.strip_suffix(".rs").unwrap_or(file) {
        "mod" | "lib" | "main" => String::new(),
        stem => format!("{stem}/"),
    };
    let folder = if folder.is_empty() { own } else { format!("{folder}/{own}") };
    [format!("{folder}{}.rs", module.name), format!("{folder}{}/mod.rs", module.name)]
}

fn standing(file: &str, declared: &HashMap<String, (String, Module)>) -> Standing {
    let mut standing = Standing::default();
    let mut seen = HashSet::new();
    let mut file = file;
    while let Some((parent, module)) = declared.get(file).filter(|_| seen.insert(file)) {
        standing.is_hidden |= !module.is_public;
        standing.is_test |= module.is_test;
        file = parent;
    }
    standing
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::languages::Language;
    use crate::listing::SourceFile;
    use crate::measuring::measure;

    fn settled(files: &[(&str, &str)]) -> Vec<String> {
        let file = |path: &str| SourceFile { path: path.to_owned(), language: Language::Rust, bytes: 1 };
        let mut measured: Vec<_> = files.iter().map(|(path, text)| measure(&file(path), text)).collect();
        settle(&mut measured);
        measured.iter().flat_map(|file| &file.findings).map(|f| format!("{} {}", f.file, f.subject)).collect()
    }

    #[test]
    fn a_private_module_needs_no_documentation_unless_it_is_reexported() {
        let lib = ("src/lib.rs", "mod a;\npub mod b;\nmod c;\npub use a::Shown;\npub use c::*;");
        let a = ("src/a.rs", "pub struct Shown;\nimpl Shown { pub fn new() {} }\npub fn hidden() {}");
        let b = ("src/b/mod.rs", "pub fn open() {}\nmod deep;");
        let deep = ("src/b/deep.rs", "pub fn far() {}");
        let c = ("src/c.rs", "pub fn star() {}");
        let expected = ["src/a.rs Shown", "src/a.rs Shown::new", "src/b/mod.rs open", "src/c.rs star"];
        assert_eq!(settled(&[lib, a, b, deep, c]), expected);
    }

    #[test]
    fn a_module_declared_for_tests_may_panic() {
        let lib = ("src/lib.rs", "#[cfg(test)]\nmod support;\npub mod work;");
        let support = ("src/support.rs", "pub fn help() { x.unwrap(); }\nmod inner;");
        let inner = ("src/support/inner.rs", "fn f() { x.unwrap(); }");
        let work = ("src/work.rs", "fn g() { x.unwrap(); }");
        assert_eq!(settled(&[lib, support, inner, work]), ["src/work.rs g"]);
    }

    #[test]
    fn modules_that_declare_each_other_end_the_search() {
        settled(&[("a.rs", "#[path = \"b.rs\"] mod a;"), ("a/a.rs", "mod x;"), ("mod.rs", "mod mod;")]);
    }
}
