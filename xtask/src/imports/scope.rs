//! The names that a module has: what it defines, and what it imports from elsewhere.

use std::collections::HashMap;

use proc_macro2::{TokenStream, TokenTree};
use syn::ext::IdentExt as _;
use syn::{Item, ItemUse, UseTree, Visibility};

use super::conditions;

/// A module by its place in the list of all modules.
pub(super) type ModuleId = usize;

#[derive(Default)]
pub(super) struct Scope {
    names: HashMap<String, Vec<Binding>>,
    globs: Vec<Use>,
    /// Imports under the name `_`.
    unnamed: Vec<Use>,
    /// What calls of macros seem to define.
    written: HashMap<String, Vec<Binding>>,
    /// What `macro_rules` defines, to be used below the definition and in the modules there.
    macros: Vec<String>,
    /// Those of them that are known in the root of the crate as well.
    exported: Vec<String>,
}

#[derive(Clone, Debug)]
pub(super) enum Binding {
    Module(ModuleId),
    /// An item of this module, with the names of its variants if it is an enum.
    Item(Vec<String>),
    /// A macro of a module below.
    MacroOf(ModuleId),
    Use(Use),
}

/// One path of a `use` item.
#[derive(Clone, Debug)]
pub(super) struct Use {
    pub(super) path: Vec<String>,
    /// Whether it begins with `::`.
    pub(super) is_global: bool,
    pub(super) is_reexport: bool,
    pub(super) line: usize,
}

/// An identifier without its `r#`.
pub(super) fn plain(ident: &syn::Ident) -> String {
    ident.unraw().to_string()
}

impl Scope {
    /// All but the modules, which are added as they are read.
    pub(super) fn of_items(items: &[Item]) -> Self {
        let mut scope = Self::default();
        for item in items {
            scope.add(item);
        }
        scope
    }

    pub(super) fn add_module(&mut self, name: &str, id: ModuleId) {
        self.bind(name.to_owned(), Binding::Module(id));
    }

    /// A macro of a module with `#[macro_use]`.
    pub(super) fn add_macro_of(&mut self, name: &str, module: ModuleId) {
        self.add_exported(name, module);
        self.macros.push(name.to_owned());
    }

    /// A macro that another module exports to this one, which is its root.
    pub(super) fn add_exported(&mut self, name: &str, module: ModuleId) {
        self.bind(name.to_owned(), Binding::MacroOf(module));
    }

    pub(super) fn add_use(&mut self, item: &ItemUse) {
        if conditions::is_for_tests(&item.attrs) {
            return;
        }
        let start = Use {
            path: Vec::new(),
            is_global: item.leading_colon.is_some(),
            is_reexport: !matches!(item.vis, Visibility::Inherited),
            line: 0,
        };
        self.add_tree(start, &item.tree);
    }

    /// What is known by this name, without globs.
    pub(super) fn named(&self, name: &str) -> &[Binding] {
        self.names.get(name).map_or(&[], Vec::as_slice)
    }

    /// What a call of a macro in this module seems to define under this name.
    pub(super) fn written(&self, name: &str) -> &[Binding] {
        self.written.get(name).map_or(&[], Vec::as_slice)
    }

    pub(super) fn globs(&self) -> &[Use] {
        &self.globs
    }

    pub(super) fn macros(&self) -> Vec<String> {
        self.macros.clone()
    }

    pub(super) fn exported(&self) -> Vec<String> {
        self.exported.clone()
    }

    pub(super) fn has_macro(&self, name: &str) -> bool {
        self.macros.iter().any(|known| known == name)
    }

    /// The imports of one item each.
    pub(super) fn imports(&self) -> impl Iterator<Item = &Use> {
        let named = self.names.values().flatten().filter_map(|binding| match binding {
            Binding::Use(import) => Some(import),
            Binding::Module(_) | Binding::Item(_) | Binding::MacroOf(_) => None,
        });
        named.chain(&self.unnamed)
    }

    fn bind(&mut self, name: String, binding: Binding) {
        self.names.entry(name).or_default().push(binding);
    }

    fn add(&mut self, item: &Item) {
        let (attributes, ident) = match item {
            Item::Const(item) => (&item.attrs, &item.ident),
            Item::Fn(item) => (&item.attrs, &item.sig.ident),
            Item::Static(item) => (&item.attrs, &item.ident),
            Item::Struct(item) => (&item.attrs, &item.ident),
            Item::Trait(item) => (&item.attrs, &item.ident),
            Item::TraitAlias(item) => (&item.attrs, &item.ident),
            Item::Type(item) => (&item.attrs, &item.ident),
            Item::Union(item) => (&item.attrs, &item.ident),
            Item::Enum(item) => {
                if !conditions::is_for_tests(&item.attrs) {
                    let variants = item.variants.iter().map(|variant| plain(&variant.ident)).collect();
                    self.bind(plain(&item.ident), Binding::Item(variants));
                }
                return;
            }
            Item::Use(item) => return self.add_use(item),
            Item::Macro(item) => match &item.ident {
                Some(ident) => {
                    self.macros.push(plain(ident));
                    if item.attrs.iter().any(|attribute| attribute.path().is_ident("macro_export")) {
                        self.exported.push(plain(ident));
                    }
                    (&item.attrs, ident)
                }
                None => {
                    if !conditions::is_for_tests(&item.attrs) {
                        self.add_written(item.mac.tokens.clone());
                    }
                    return;
                }
            },
            // Modules are added by their own function; the others have no name.
            _ => return,
        };
        if !conditions::is_for_tests(attributes) {
            self.bind(plain(ident), Binding::Item(Vec::new()));
        }
    }

    /// Each identifier in the arguments of a macro that follows the keyword of a definition.
    fn add_written(&mut self, tokens: TokenStream) {
        let keywords = ["struct", "enum", "fn", "trait", "type", "const", "static"];
        let mut follows_keyword = false;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) if follows_keyword && ident != "ref" => {
                    self.written.entry(plain(&ident)).or_default().push(Binding::Item(Vec::new()));
                    follows_keyword = false;
                }
                TokenTree::Ident(ident) => follows_keyword = keywords.iter().any(|keyword| ident == keyword),
                TokenTree::Group(group) => {
                    self.add_written(group.stream());
                    follows_keyword = false;
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => follows_keyword = false,
            }
        }
    }

    fn add_tree(&mut self, mut import: Use, tree: &UseTree) {
        match tree {
            UseTree::Path(part) => {
                import.path.push(plain(&part.ident));
                self.add_tree(import, &part.tree);
            }
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.add_tree(import.clone(), tree);
                }
            }
            UseTree::Glob(glob) => {
                import.line = glob.star_token.spans[0].start().line;
                self.globs.push(import);
            }
            UseTree::Name(name) => self.add_leaf(import, &name.ident, None),
            UseTree::Rename(name) => self.add_leaf(import, &name.ident, Some(&name.rename)),
        }
    }

    fn add_leaf(&mut self, mut import: Use, ident: &syn::Ident, rename: Option<&syn::Ident>) {
        import.line = ident.span().start().line;
        if ident != "self" || import.path.is_empty() {
            import.path.push(plain(ident));
        }
        let own = import.path.last().cloned().unwrap_or_default();
        match rename.map_or(own, plain) {
            name if name == "_" => self.unnamed.push(import),
            name => self.bind(name, Binding::Use(import)),
        }
    }
}
