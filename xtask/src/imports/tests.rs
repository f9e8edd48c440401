//! Small crates, each with what one of its files imports.

use std::collections::HashMap;
use std::path::Path;

use super::Sources;
use super::circles::circles;

/// The imports of the crate `lib.rs` among these files, as `from -> to: line, item`.
fn imports(files: &[(&str, &str)]) -> Vec<String> {
    let texts: HashMap<&str, &str> = files.iter().copied().collect();
    let mut sources = Sources::reading(|path| texts.get(path.to_str().unwrap()).map(|text| (*text).to_owned()));
    sources.add(Path::new("lib.rs")).unwrap();
    let name = |path: &Path| path.display().to_string();
    sources.imports().iter().map(|i| format!("{} -> {}: {}, {}", name(&i.from), name(&i.to), i.line, i.item)).collect()
}

#[test]
fn brace_groups_self_super_and_crate_lead_to_the_file_that_defines_the_item() {
    let lib = ("lib.rs", "mod a; mod b;");
    let a = ("a/mod.rs", "pub mod deep; pub struct Two;");
    let deep = ("a/deep.rs", "use super::{Two};\nuse crate::{b::{self, One}};\nfn f() { self::g(b::h()) } fn g() {}");
    let b = ("b.rs", "pub struct One; pub fn h() { use super::a::deep::{f as other}; }");
    let expected = ["a/deep.rs -> a/mod.rs: 1, Two", "a/deep.rs -> b.rs: 2, One", "b.rs -> a/deep.rs: 1, f"];
    assert_eq!(imports(&[lib, a, deep, b]), expected);
}

#[test]
fn paths_without_a_use_count_also_in_types_macros_and_serde() {
    let lib = ("lib.rs", "mod a; mod b; mod c; mod d;");
    let a = ("a.rs", "struct S {\n field: Vec<crate::b::One> }");
    let c = ("c.rs", "fn f() { println!(\"{}\", 1 + super::b::two()) }");
    let d = ("d.rs", "struct S { #[serde(default, with = \"crate::b\")] x: u8 }");
    let b = ("b.rs", "pub struct One; pub fn two() {}");
    let expected = ["a.rs -> b.rs: 2, One", "c.rs -> b.rs: 1, two", "d.rs -> b.rs: 1, b"];
    assert_eq!(imports(&[lib, a, b, c, d]), expected);
}

#[test]
fn globs_renames_and_reexports_are_followed() {
    let lib = ("lib.rs", "mod a; mod b; mod c;");
    let a = ("a.rs", "mod deep; pub use deep::{One as First, *};");
    let deep = ("a/deep.rs", "pub struct One; pub enum Two { Left }");
    let b = ("b.rs", "use super::a::*;\nfn f(x: First) { match x { Two::Left => {} } }");
    let c = ("c.rs", "fn f() { use crate::a::Two::*;\n Left; }");
    assert_eq!(imports(&[lib, a, deep, b, c]), ["b.rs -> a/deep.rs: 2, One", "c.rs -> a/deep.rs: 2, Two"]);
}

#[test]
fn a_parent_that_only_reexports_does_not_import() {
    let (a, b) = (("a.rs", "pub struct One;"), ("b.rs", "pub struct Two;"));
    let lib = ("lib.rs", "mod a; mod b; pub use a::One; pub use b::*;\npub mod prelude { pub use crate::a::One; }");
    assert_eq!(imports(&[lib, a, b]), [""; 0]);
    let lib = ("lib.rs", "mod a; mod b; pub use a::One; pub use b::*;\nfn f(x: One) -> Two { x }");
    assert_eq!(imports(&[lib, a, b]), ["lib.rs -> a.rs: 2, One", "lib.rs -> b.rs: 2, Two"]);
}

#[test]
fn a_reexport_of_what_is_elsewhere_is_an_import() {
    let (lib, b) = (("lib.rs", "mod a; mod b;"), ("b.rs", "pub struct One;"));
    assert_eq!(imports(&[lib, ("a.rs", "pub use crate::b::One;"), b]), ["a.rs -> b.rs: 1, One"]);
    assert_eq!(imports(&[lib, ("a.rs", "pub use crate::b;"), b]), ["a.rs -> b.rs: 1, b"]);
    assert_eq!(imports(&[lib, ("a.rs", "pub(in crate::b) use std::mem;"), b]), [""; 0]);
}

#[test]
fn code_for_tests_alone_is_left_out_and_other_conditions_are_not() {
    let lib = ("lib.rs", "mod a; mod b; #[cfg(all(test, unix))] mod missing;");
    let b = ("b.rs", "pub fn one() {} pub fn two() {} pub mod c { pub fn three() {} }");
    let tested = "#[cfg(test)] use crate::b::one;\n#[cfg(test)] mod tests { use crate::b::two; }\n";
    assert_eq!(imports(&[lib, ("a.rs", tested), b]), [""; 0]);
    let after = format!("{tested}fn f() {{ #[cfg(test)] crate::b::one(); crate::b::two() }}");
    assert_eq!(imports(&[lib, ("a.rs", &after), b]), ["a.rs -> b.rs: 3, two"]);
    let other = "#[cfg(not(test))] fn f() { crate::b::one() }\n#[cfg(any(test, unix))] use crate::b::c::three;";
    assert_eq!(imports(&[lib, ("a.rs", other), b]), ["a.rs -> b.rs: 1, one"]);
}

#[test]
fn files_are_found_by_name_by_folder_and_by_attribute() {
    let files = [
        ("lib.rs", "mod a; mod b; #[cfg_attr(unix, path = \"x/c.rs\")] mod c; mod e { mod f; }"),
        ("a.rs", "mod deep;"),
        ("a/deep.rs", "use crate::b::deep::One;"),
        ("b/mod.rs", "pub mod deep;"),
        ("b/deep.rs", "pub struct One;"),
        ("x/c.rs", "#[path = \"../y.rs\"] mod y;"),
        ("y.rs", "use crate::b::deep::One;"),
        ("e/f.rs", "use crate::b::deep::One;"),
    ];
    let expected = ["a/deep.rs", "e/f.rs", "y.rs"].map(|from| format!("{from} -> b/deep.rs: 1, One"));
    assert_eq!(imports(&files), expected);
}

#[test]
fn macros_are_found_by_path_and_by_the_text_around_them() {
    let lib = ("lib.rs", "macro_rules! outer { () => {} } #[macro_use] mod a; mod b;");
    let a =
        ("a.rs", "macro_rules! inner { () => {} } macro_rules! own { () => { $crate::b::One } } pub(crate) use own;");
    let b = ("b.rs", "pub struct One; fn f() {\n outer!();\n inner!();\n crate::a::own!() }");
    let expected = ["a.rs -> b.rs: 1, One", "b.rs -> a.rs: 3, inner", "b.rs -> lib.rs: 2, outer"];
    assert_eq!(imports(&[lib, a, b]), expected);
    let lib = ("lib.rs", "mod a; mod b;");
    let a = ("a.rs", "#[macro_export] macro_rules! out { () => {} }");
    assert_eq!(imports(&[lib, a, ("b.rs", "fn f() { crate::out!() }")]), ["b.rs -> a.rs: 1, out"]);
    let written = ("a.rs", "tokio::task_local! { pub static HERE: u8; }");
    let b = ("b.rs", "use crate::a::HERE;");
    assert_eq!(imports(&[lib, written, b]), ["b.rs -> a.rs: 1, HERE"]);
}

#[test]
fn fields_locals_and_other_crates_are_no_imports() {
    let lib = ("lib.rs", "mod a; mod b;");
    let b = ("b.rs", "pub fn one() {}");
    let a = (
        "a.rs",
        "use crate::b;\nfn f(b: u8, x: X) { b.one(); other::one(); ::b::one(); println!(\"{}\", x.b::<u8>()) }",
    );
    assert_eq!(imports(&[lib, a, b]), [""; 0]);
}

#[test]
fn imports_that_lead_to_themselves_end() {
    let a = ("a.rs", "pub use super::b::*; pub use super::b::One;");
    let b = ("b.rs", "pub use super::a::*; pub use super::a::One;");
    assert_eq!(imports(&[("lib.rs", "mod a; mod b;"), a, b]), ["a.rs -> b.rs: 1, One", "b.rs -> a.rs: 1, One"]);
}

#[test]
fn a_name_may_be_a_module_and_a_function() {
    let lib = ("lib.rs", "mod a; mod b;");
    let a = ("a.rs", "mod work; pub use work::work;");
    let work = ("a/work.rs", "pub fn work() {} pub struct Queue;");
    let b = ("b.rs", "use crate::a::work;\nfn f() { work() }");
    assert_eq!(imports(&[lib, a, work, b]), ["b.rs -> a/work.rs: 1, work"]);
}

#[test]
fn a_path_that_leads_nowhere_is_reported() {
    let texts = HashMap::from([("lib.rs", "mod a;\nuse a::Missing;"), ("a.rs", "")]);
    let mut sources = Sources::reading(|path| texts.get(path.to_str().unwrap()).map(|text| (*text).to_owned()));
    sources.add(Path::new("lib.rs")).unwrap();
    let unresolved = sources.unresolved();
    assert_eq!((unresolved.len(), unresolved[0].line, &*unresolved[0].path), (1, 2, "Missing of a.rs"));
}

#[test]
fn a_reexport_of_an_item_of_another_crate_leads_out_of_this_one() {
    let texts =
        HashMap::from([("lib.rs", "mod a; mod b;"), ("a.rs", "pub use other::One;"), ("b.rs", "use crate::a::One;")]);
    let mut sources = Sources::reading(|path| texts.get(path.to_str().unwrap()).map(|text| (*text).to_owned()));
    sources.add(Path::new("lib.rs")).unwrap();
    assert_eq!((sources.unresolved(), sources.imports()), (Vec::new(), Vec::new()));
}

#[test]
fn other_crates_are_found_by_their_names_and_not_by_those_of_own_modules() {
    let files = [
        ("lib.rs", "mod a; mod b; mod c; mod d;"),
        ("a.rs", "use std::mem;\nuse {ractor::*, tokio as t};"),
        ("b.rs", "fn f(tokio: u8) {\n tokio::select!(); g(tokio) }\n#[cfg(test)] mod tests { use ractor::Actor; }"),
        ("c.rs", "mod tokio { pub fn f() {} }\nfn f() { tokio::f() }"),
        ("d.rs", "mod tokio {}\nuse ::tokio::sync;"),
    ];
    let texts: HashMap<&str, &str> = files.into_iter().collect();
    let mut sources = Sources::reading(|path| texts.get(path.to_str().unwrap()).map(|text| (*text).to_owned()));
    sources.add(Path::new("lib.rs")).unwrap();
    let found = sources.outside(&["tokio", "ractor"]);
    let found: Vec<_> = found.iter().map(|o| (o.file.to_str().unwrap(), o.line, &*o.name)).collect();
    assert_eq!(found, [("a.rs", 2, "ractor"), ("a.rs", 2, "tokio"), ("b.rs", 2, "tokio"), ("d.rs", 2, "tokio")]);
}

#[test]
fn circles_are_the_files_that_import_each_other_over_others_largest_first() {
    let files = [
        ("lib.rs", "mod a; mod b; mod c; mod d; mod e; mod f; pub struct Top;"),
        ("a.rs", "pub struct A; use crate::b::B;"),
        ("b.rs", "pub struct B; use crate::c::C;"),
        ("c.rs", "pub struct C; use crate::{a::A, d::D};"),
        ("d.rs", "pub struct D; use crate::e::E;"),
        ("e.rs", "pub struct E; use crate::d::D;"),
        ("f.rs", "use crate::{Top, a::A};"),
    ];
    let texts: HashMap<&str, &str> = files.into_iter().collect();
    let mut sources = Sources::reading(|path| texts.get(path.to_str().unwrap()).map(|text| (*text).to_owned()));
    sources.add(Path::new("lib.rs")).unwrap();
    let circles = circles(&sources.imports());
    let files: Vec<Vec<&str>> =
        circles.iter().map(|circle| circle.files.iter().map(|file| file.to_str().unwrap()).collect()).collect();
    assert_eq!(files, [vec!["a.rs", "b.rs", "c.rs"], vec!["d.rs", "e.rs"]]);
    assert_eq!(circles.iter().map(|circle| circle.imports.len()).collect::<Vec<_>>(), [3, 2]);
}
