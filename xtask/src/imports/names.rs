//! From a path to the module that defines what it leads to.

use super::Sources;
use super::scope::{Binding, ModuleId};

/// What a path leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Module {
        id: ModuleId,
        name: String,
    },
    Item {
        module: ModuleId,
        name: String,
        variants: Vec<String>,
    },
    /// A name that the module does not seem to have.
    Unknown {
        module: ModuleId,
        name: String,
    },
    /// Something of a crate that was not read, which `module` names.
    Outside {
        module: ModuleId,
        name: String,
    },
}

impl Target {
    /// The module that defines it, or that it is.
    pub(super) fn module(&self) -> ModuleId {
        match self {
            Self::Module { id, .. } => *id,
            Self::Item { module, .. } | Self::Unknown { module, .. } | Self::Outside { module, .. } => *module,
        }
    }

    pub(super) fn name(&self) -> &str {
        match self {
            Self::Module { name, .. }
            | Self::Item { name, .. }
            | Self::Unknown { name, .. }
            | Self::Outside { name, .. } => name,
        }
    }

    pub(super) fn is_module(&self) -> bool {
        matches!(self, Self::Module { .. })
    }
}

/// The names whose imports are being followed: one that leads to itself ends there.
type Following<'a> = Vec<(ModuleId, &'a str)>;

impl Sources<'_> {
    /// What the path leads to, seen from `module`: nothing if it leads out of the crates that were read, and several if
    /// conditions, or kinds of names, make it so.
    pub(super) fn follow(&self, module: ModuleId, path: &[String], is_global: bool) -> Vec<Target> {
        let mut found = self.follow_path(module, path, is_global, &mut Vec::new());
        found.retain(|target| !matches!(target, Target::Outside { .. }));
        found
    }

    /// Whether the module has an item or a module of its own by the name of a crate.
    pub(super) fn has_own(&self, module: ModuleId, name: &str) -> bool {
        let own = self.lookup(module, name, &mut Vec::new());
        own.iter().any(|target| !matches!(target, Target::Unknown { .. } | Target::Outside { .. }))
    }

    fn follow_path<'a>(
        &'a self,
        module: ModuleId,
        path: &'a [String],
        is_global: bool,
        following: &mut Following<'a>,
    ) -> Vec<Target> {
        let Some((first, rest)) = path.split_first() else { return Vec::new() };
        let mut targets = match first.as_str() {
            name if is_global => self.library(name),
            "crate" => vec![self.whole(self.modules[module].root)],
            "self" => vec![self.whole(module)],
            "super" => self.above(module),
            "Self" => Vec::new(),
            name => match self.lookup(module, name, following) {
                found if found.is_empty() && rest.is_empty() => self.textual_macro(module, name),
                found if found.is_empty() => match self.library(name) {
                    library if library.is_empty() => vec![Target::Outside { module, name: name.to_owned() }],
                    library => library,
                },
                found => found,
            },
        };
        for segment in rest {
            let next = |target| match target {
                Target::Module { id, .. } => match segment.as_str() {
                    "self" => vec![self.whole(id)],
                    "super" => self.above(id),
                    name => match self.lookup(id, name, following) {
                        found if found.is_empty() => vec![Target::Unknown { module: id, name: name.to_owned() }],
                        found => found,
                    },
                },
                // A variant, or what belongs to a type: the item is what is imported.
                Target::Item { .. } | Target::Unknown { .. } | Target::Outside { .. } => vec![target],
            };
            targets = targets.into_iter().flat_map(next).collect();
            // A name may be a module and a function at once: the alternative that has the next name is meant.
            if targets.iter().any(|target| !matches!(target, Target::Unknown { .. })) {
                targets.retain(|target| !matches!(target, Target::Unknown { .. }));
            }
        }
        targets
    }

    fn lookup<'a>(&'a self, module: ModuleId, name: &'a str, following: &mut Following<'a>) -> Vec<Target> {
        let scope = &self.modules[module].scope;
        let is_first = !following.contains(&(module, name));
        following.push((module, name));
        let mut found = Vec::new();
        for binding in scope.named(name) {
            match binding {
                Binding::Module(id) => found.push(Target::Module { id: *id, name: name.to_owned() }),
                Binding::Item(variants) => found.push(item(module, name, variants)),
                Binding::MacroOf(module) => found.push(item(*module, name, &[])),
                Binding::Use(import) if is_first => {
                    found.extend(self.follow_path(module, &import.path, import.is_global, following));
                }
                Binding::Use(_) => {}
            }
        }
        if found.is_empty() && is_first {
            for glob in scope.globs() {
                for target in self.follow_path(module, &glob.path, glob.is_global, following) {
                    match target {
                        Target::Module { id, .. } if id != module => found.extend(self.lookup(id, name, following)),
                        Target::Item { ref variants, .. } if variants.iter().any(|variant| variant == name) => {
                            found.push(target);
                        }
                        Target::Module { .. }
                        | Target::Item { .. }
                        | Target::Unknown { .. }
                        | Target::Outside { .. } => {}
                    }
                }
            }
        }
        if found.is_empty() {
            found.extend(scope.written(name).iter().map(|_| item(module, name, &[])));
        }
        following.pop();
        found
    }

    /// A `macro_rules` of a module around this one, which may be used without a path.
    fn textual_macro(&self, module: ModuleId, name: &str) -> Vec<Target> {
        match self.modules[module].parent {
            Some(parent) if self.modules[parent].scope.has_macro(name) => self.lookup(parent, name, &mut Vec::new()),
            Some(parent) => self.textual_macro(parent, name),
            None => Vec::new(),
        }
    }

    fn library(&self, name: &str) -> Vec<Target> {
        self.libraries.get(name).map(|&id| self.whole(id)).into_iter().collect()
    }

    fn above(&self, module: ModuleId) -> Vec<Target> {
        self.modules[module].parent.map(|parent| self.whole(parent)).into_iter().collect()
    }

    fn whole(&self, id: ModuleId) -> Target {
        let name = self.modules[id].file.display().to_string();
        Target::Module { id, name }
    }
}

fn item(module: ModuleId, name: &str, variants: &[String]) -> Target {
    Target::Item { module, name: name.to_owned(), variants: variants.to_vec() }
}
