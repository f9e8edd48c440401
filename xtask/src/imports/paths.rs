//! The paths in the code of a module: types, expressions, patterns, traits, and the arguments of macros.

use std::collections::HashMap;

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, ImplItem, Item, ItemUse, Path, Stmt, TraitItem};

use super::conditions::is_for_tests;
use super::scope::plain;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) segments: Vec<String>,
    /// Whether it begins with `::`.
    pub(super) is_global: bool,
    /// Whether a module is used as a whole if it leads to one.
    pub(super) may_be_module: bool,
    /// The first line that has it.
    pub(super) line: usize,
}

pub(super) struct Code {
    pub(super) paths: Vec<Found>,
    /// The imports within functions.
    pub(super) uses: Vec<ItemUse>,
}

/// What is in these items. Those of modules among them are left out, and so are the imports of the module itself.
pub(super) fn of_items(items: &[Item]) -> Code {
    let mut visitor = Visitor::default();
    for item in items.iter().filter(|item| !matches!(item, Item::Use(_))) {
        visitor.visit_item(item);
    }
    Code { paths: visitor.paths, uses: visitor.uses }
}

#[derive(Default)]
struct Visitor {
    paths: Vec<Found>,
    known: HashMap<(Vec<String>, bool, bool), usize>,
    uses: Vec<ItemUse>,
}

impl Visitor {
    fn add(&mut self, found: Found) {
        let Found { segments, is_global, may_be_module, line } = &found;
        let place = self.known.entry((segments.clone(), *is_global, *may_be_module)).or_insert(self.paths.len());
        match self.paths.get_mut(*place) {
            Some(known) => known.line = known.line.min(*line),
            None => self.paths.push(found),
        }
    }

    fn add_path(&mut self, path: &Path, line: usize, may_be_module: bool) {
        let segments = path.segments.iter().map(|segment| plain(&segment.ident)).collect();
        self.add(Found { segments, is_global: path.leading_colon.is_some(), may_be_module, line });
    }

    /// The identifiers with `::` between them, wherever they are.
    fn scan(&mut self, tokens: TokenStream) {
        let mut found: Option<Found> = None;
        let mut colons = 0;
        let mut last = ' ';
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    match &mut found {
                        Some(path) if colons == 2 => path.segments.push(plain(&ident)),
                        // What follows a dot is a field or a method, and what follows an apostrophe a lifetime.
                        _ if last == '.' || last == '\'' => {
                            found.take().into_iter().for_each(|path| self.add(path));
                        }
                        _ => {
                            found.take().into_iter().for_each(|path| self.add(path));
                            let (segments, line) = (vec![plain(&ident)], ident.span().start().line);
                            found = Some(Found { segments, is_global: colons == 2, may_be_module: false, line });
                        }
                    }
                    (colons, last) = (0, ' ');
                }
                TokenTree::Punct(punct) => {
                    if punct.as_char() != ':' {
                        found.take().into_iter().for_each(|path| self.add(path));
                    }
                    colons = if punct.as_char() == ':' { colons + 1 } else { 0 };
                    // A range is not a field.
                    last = if last == '.' && punct.as_char() == '.' { ' ' } else { punct.as_char() };
                }
                TokenTree::Group(group) => {
                    (colons, last) = (0, ' ');
                    found.take().into_iter().for_each(|path| self.add(path));
                    self.scan(group.stream());
                }
                TokenTree::Literal(_) => {
                    (colons, last) = (0, ' ');
                    found.take().into_iter().for_each(|path| self.add(path));
                }
            }
        }
        found.into_iter().for_each(|path| self.add(path));
    }

    /// The paths that serde is given as texts.
    fn scan_texts(&mut self, tokens: TokenStream) {
        for token in tokens {
            match token {
                TokenTree::Group(group) => self.scan_texts(group.stream()),
                TokenTree::Literal(literal) => {
                    let line = literal.span().start().line;
                    if let Ok(text) = syn::parse_str::<syn::LitStr>(&literal.to_string())
                        && let Ok(path) = text.parse::<Path>()
                    {
                        self.add_path(&path, line, true);
                    }
                }
                TokenTree::Ident(_) | TokenTree::Punct(_) => {}
            }
        }
    }
}

impl<'ast> Visit<'ast> for Visitor {
    fn visit_path(&mut self, path: &'ast Path) {
        if let Some(first) = path.segments.first() {
            self.add_path(path, first.ident.span().start().line, false);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        self.scan(called.tokens.clone());
        visit::visit_macro(self, called);
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        if let syn::Meta::List(list) = &attribute.meta {
            if list.path.is_ident("serde") {
                self.scan_texts(list.tokens.clone());
            } else if list.path.is_ident("error") {
                self.scan(list.tokens.clone());
            }
        }
    }

    fn visit_item(&mut self, item: &'ast Item) {
        match item {
            Item::Mod(_) => {}
            Item::Use(item) => self.uses.push(item.clone()),
            item if is_for_tests(attributes(item)) => {}
            item => visit::visit_item(self, item),
        }
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        let attributes = match item {
            ImplItem::Const(item) => &item.attrs[..],
            ImplItem::Fn(item) => &item.attrs,
            ImplItem::Type(item) => &item.attrs,
            ImplItem::Macro(item) => &item.attrs,
            _ => &[],
        };
        if !is_for_tests(attributes) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_trait_item(&mut self, item: &'ast TraitItem) {
        let attributes = match item {
            TraitItem::Const(item) => &item.attrs[..],
            TraitItem::Fn(item) => &item.attrs,
            TraitItem::Type(item) => &item.attrs,
            TraitItem::Macro(item) => &item.attrs,
            _ => &[],
        };
        if !is_for_tests(attributes) {
            visit::visit_trait_item(self, item);
        }
    }

    fn visit_stmt(&mut self, statement: &'ast Stmt) {
        let attributes = match statement {
            Stmt::Local(local) => &local.attrs[..],
            Stmt::Macro(called) => &called.attrs,
            Stmt::Expr(syn::Expr::Block(block), _) => &block.attrs,
            Stmt::Expr(syn::Expr::If(choice), _) => &choice.attrs,
            Stmt::Expr(syn::Expr::Call(call), _) => &call.attrs,
            Stmt::Expr(syn::Expr::MethodCall(call), _) => &call.attrs,
            Stmt::Item(_) | Stmt::Expr(..) => &[],
        };
        if !is_for_tests(attributes) {
            visit::visit_stmt(self, statement);
        }
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        if !is_for_tests(&field.attrs) {
            visit::visit_field(self, field);
        }
    }

    fn visit_variant(&mut self, variant: &'ast syn::Variant) {
        if !is_for_tests(&variant.attrs) {
            visit::visit_variant(self, variant);
        }
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        if !is_for_tests(&arm.attrs) {
            visit::visit_arm(self, arm);
        }
    }

    fn visit_field_value(&mut self, field: &'ast syn::FieldValue) {
        if !is_for_tests(&field.attrs) {
            visit::visit_field_value(self, field);
        }
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}
