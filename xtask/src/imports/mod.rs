//! Which file imports an item of which other file, read from the source itself.
//!
//! Every file of a crate is parsed. Every path in it is followed through brace groups, `self`, `super`, `crate`, globs,
//! renames and re-exports to the file that defines the item. Code that is compiled for tests alone (`#[cfg(test)]`) is left
//! out; of code under any other condition all alternatives are read.
//!
//! These are no imports: a `mod` declaration; a module that re-exports an item of a module below it (unless its own code
//! uses the item as well); a call of a method, whose type is not known here; and what a macro writes that is not in the
//! arguments of its call.

pub mod circles;
mod conditions;
mod names;
mod paths;
mod scope;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Component, Path, PathBuf};

use names::Target;
use paths::Found;
use scope::{ModuleId, Scope};

type Read<'a> = Box<dyn Fn(&Path) -> Option<String> + 'a>;

/// One file imports an item of another file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Import {
    pub from: PathBuf,
    pub to: PathBuf,
    /// The first line of `from` that has it.
    pub line: usize,
    /// The name of the item in the file that defines it.
    pub item: String,
}

/// A path that begins within its crate and leads to nothing that was found.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unresolved {
    pub file: PathBuf,
    pub line: usize,
    pub path: String,
}

/// A file that names another crate.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Outside {
    pub file: PathBuf,
    /// The first line that does.
    pub line: usize,
    pub name: String,
}

/// Crates that have been parsed.
pub struct Sources<'a> {
    read: Read<'a>,
    modules: Vec<Module>,
    /// The root modules of libraries, by the names that other crates have for them.
    libraries: HashMap<String, ModuleId>,
}

/// A module of a crate: a file, or a part of one between braces.
struct Module {
    file: PathBuf,
    /// Where the files of its own modules are.
    folder: PathBuf,
    parent: Option<ModuleId>,
    root: ModuleId,
    scope: Scope,
    code: Vec<Found>,
}

impl Default for Sources<'static> {
    fn default() -> Self {
        Self::reading(|path| std::fs::read_to_string(path).ok())
    }
}

impl<'a> Sources<'a> {
    /// Gets the text of each file from `read`, which has `None` for a file that does not exist.
    pub fn reading(read: impl Fn(&Path) -> Option<String> + 'a) -> Self {
        Self { read: Box::new(read), modules: Vec::new(), libraries: HashMap::new() }
    }

    /// Parses the crate whose root is the file `root`, with all its modules.
    ///
    /// # Errors
    /// A file that does not exist or is not Rust.
    pub fn add(&mut self, root: &Path) -> Result<(), String> {
        self.add_root(root).map(drop)
    }

    /// Like [`add`](Self::add), for a library: crates that are added as well find it under `name`.
    ///
    /// # Errors
    /// A file that does not exist or is not Rust.
    pub fn add_library(&mut self, name: &str, root: &Path) -> Result<(), String> {
        let module = self.add_root(root)?;
        self.libraries.insert(name.replace('-', "_"), module);
        Ok(())
    }

    /// The files that have been parsed.
    pub fn files(&self) -> BTreeSet<&Path> {
        self.modules.iter().map(|module| module.file.as_path()).collect()
    }

    /// Each pair of files of which the first imports something of the second, with the first line that does.
    pub fn imports(&self) -> Vec<Import> {
        let mut first: BTreeMap<(&Path, &Path), (usize, String)> = BTreeMap::new();
        for (module, line, target) in self.targets() {
            let (from, to) = (self.modules[module].file.as_path(), self.modules[target.module()].file.as_path());
            if from != to {
                let found = (line, target.name().to_owned());
                first.entry((from, to)).and_modify(|known| *known = found.clone().min(known.clone())).or_insert(found);
            }
        }
        let import =
            |((from, to), (line, item)): ((&Path, &Path), _)| Import { from: from.into(), to: to.into(), line, item };
        first.into_iter().map(import).collect()
    }

    /// The paths that begin with `crate`, `self` or `super`, or with a module of the crate, and lead to no item: what a macro
    /// defines, or a gap of this parser.
    pub fn unresolved(&self) -> Vec<Unresolved> {
        let mut unresolved = BTreeSet::new();
        for (module, line, target) in self.targets() {
            if let Target::Unknown { module: of, name } = target {
                let path = format!("{name} of {}", self.modules[of].file.display());
                unresolved.insert(Unresolved { file: self.modules[module].file.clone(), line, path });
            }
        }
        unresolved.into_iter().collect()
    }

    /// The files that name one of these crates, which are none of those that were read.
    pub fn outside(&self, names: &[&str]) -> Vec<Outside> {
        let mut first: BTreeMap<(&Path, &str), usize> = BTreeMap::new();
        for (id, module) in self.modules.iter().enumerate() {
            let imports = module.scope.imports().chain(module.scope.globs());
            let imports = imports.map(|import| (&import.path, import.is_global, import.line));
            let code = module.code.iter().filter(|found| found.segments.len() > 1);
            for (path, is_global, line) in imports.chain(code.map(|path| (&path.segments, path.is_global, path.line))) {
                let Some(name) = names.iter().find(|name| path.first().is_some_and(|first| first == *name)) else {
                    continue;
                };
                if is_global || !self.has_own(id, name) {
                    let known = first.entry((&module.file, name)).or_insert(line);
                    *known = line.min(*known);
                }
            }
        }
        let outside =
            |((file, name), line): ((&Path, &str), _)| Outside { file: file.into(), line, name: name.to_owned() };
        first.into_iter().map(outside).collect()
    }

    /// What the modules use: the module, the line, and what is there.
    fn targets(&self) -> Vec<(ModuleId, usize, Target)> {
        let mut targets = Vec::new();
        for (id, module) in self.modules.iter().enumerate() {
            for import in module.scope.imports() {
                let found = self.follow(id, &import.path, import.is_global);
                let counts = |target: &Target| {
                    let is_below = || self.is_within(target.module(), self.top(id));
                    if import.is_reexport { !is_below() } else { !target.is_module() }
                };
                targets.extend(found.into_iter().filter(counts).map(|target| (id, import.line, target)));
            }
            for path in &module.code {
                let found = self.follow(id, &path.segments, path.is_global).into_iter();
                let found = found.filter(|target| path.may_be_module || !target.is_module());
                targets.extend(found.map(|target| (id, path.line, target)));
            }
        }
        targets
    }

    /// The module of the whole file that `module` is in.
    fn top(&self, module: ModuleId) -> ModuleId {
        match self.modules[module].parent {
            Some(parent) if self.modules[parent].file == self.modules[module].file => self.top(parent),
            _ => module,
        }
    }

    fn is_within(&self, module: ModuleId, ancestor: ModuleId) -> bool {
        module == ancestor || self.modules[module].parent.is_some_and(|parent| self.is_within(parent, ancestor))
    }

    fn add_root(&mut self, root: &Path) -> Result<ModuleId, String> {
        let folder = root.parent().unwrap_or(Path::new("")).to_owned();
        let module = self.add_file(root, folder, None)?;
        module.ok_or_else(|| format!("{}: all of it is for tests", root.display()))
    }

    /// The module of a file, or `None` if the whole file is for tests.
    fn add_file(&mut self, file: &Path, folder: PathBuf, parent: Option<ModuleId>) -> Result<Option<ModuleId>, String> {
        let text = (self.read)(file).ok_or_else(|| format!("{}: it cannot be read", file.display()))?;
        let parsed = syn::parse_file(&text)
            .map_err(|error| format!("{}:{}: {error}", file.display(), error.span().start().line))?;
        if conditions::is_for_tests(&parsed.attrs) {
            return Ok(None);
        }
        self.add_items(file, folder, parent, &parsed.items).map(Some)
    }

    fn add_items(
        &mut self,
        file: &Path,
        folder: PathBuf,
        parent: Option<ModuleId>,
        items: &[syn::Item],
    ) -> Result<ModuleId, String> {
        let id = self.modules.len();
        let root = parent.map_or(id, |parent| self.modules[parent].root);
        let code = paths::of_items(items);
        let mut scope = Scope::of_items(items);
        for item in &code.uses {
            scope.add_use(item);
        }
        let exported = scope.exported();
        self.modules.push(Module { file: file.to_owned(), folder, parent, root, scope, code: code.paths });
        for name in exported.iter().filter(|_| id != root) {
            self.modules[root].scope.add_exported(name, id);
        }
        for item in items {
            if let syn::Item::Mod(declared) = item
                && !conditions::is_for_tests(&declared.attrs)
            {
                self.add_module(id, declared)?;
            }
        }
        Ok(id)
    }

    fn add_module(&mut self, parent: ModuleId, declared: &syn::ItemMod) -> Result<(), String> {
        let name = scope::plain(&declared.ident);
        let (file, folder) = (self.modules[parent].file.clone(), self.modules[parent].folder.clone());
        let is_macro_use = declared.attrs.iter().any(|attribute| attribute.path().is_ident("macro_use"));
        let mut added = Vec::new();
        if let Some((_, items)) = &declared.content {
            added.push(self.add_items(&file, folder.join(&name), Some(parent), items)?);
        } else {
            for (file, folder) in self.files_of(&file, &folder, &name, declared)? {
                added.extend(self.add_file(&file, folder, Some(parent))?);
            }
        }
        for id in added {
            let macros = if is_macro_use { self.modules[id].scope.macros() } else { Vec::new() };
            let scope = &mut self.modules[parent].scope;
            scope.add_module(&name, id);
            for name in macros {
                scope.add_macro_of(&name, id);
            }
        }
        Ok(())
    }

    /// The files that a declaration may mean, each with the folder of its own modules: one, or one for each alternative of
    /// its `path` attributes.
    fn files_of(
        &self,
        parent: &Path,
        folder: &Path,
        name: &str,
        declared: &syn::ItemMod,
    ) -> Result<Vec<(PathBuf, PathBuf)>, String> {
        let named = conditions::paths(&declared.attrs);
        if !named.is_empty() {
            let beside = parent.parent().unwrap_or(Path::new(""));
            let file = |path: &String| {
                let file = without_dots(&beside.join(path));
                let folder = file.parent().unwrap_or(Path::new("")).to_owned();
                (file, folder)
            };
            return Ok(named.iter().map(file).collect());
        }
        let own = folder.join(name);
        let files = [folder.join(format!("{name}.rs")), own.join("mod.rs")];
        let found = files.into_iter().find(|file| (self.read)(file).is_some());
        let line = declared.ident.span().start().line;
        let file = found.ok_or_else(|| format!("{}:{line}: no file for the module {name}", parent.display()))?;
        Ok(vec![(file, own)])
    }
}

/// The path without `.` and `..`, so that a file has one path only.
fn without_dots(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut path, part| {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                path.pop();
            }
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => path.push(part),
        }
        path
    })
}
