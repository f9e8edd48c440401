//! The public items of a file of Rust that have a doc comment, and the messages that their code makes.

use std::ops::Range;

use syn::{
    Attribute, Fields, ImplItem, Item, ItemEnum, ItemImpl, ItemMacro, ItemMod, ItemStruct, ItemTrait, TraitItem, Type,
    Visibility,
};

use super::doc_comments::{documentation, end, is_left_out};
use super::messages::{self, Message};

/// How deep modules and macros may be within each other; what is deeper is left out.
const DEEPEST: usize = 8;

/// The most characters of a signature; the rest is left out.
const LONGEST_SIGNATURE: usize = 400;

/// An item with a doc comment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Its path below the module of the file.
    pub(crate) name: String,
    pub(crate) kind: &'static str,
    /// From the visibility to the body; empty for what has none.
    pub(crate) signature: String,
    pub(crate) documentation: String,
    /// Its documented fields or variants, if it has any, below their heading.
    pub(crate) parts: Option<Parts>,
}

/// The documented parts of an item: their heading, their names and their documentation.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Parts {
    pub(crate) heading: &'static str,
    pub(crate) parts: Vec<(String, String)>,
}

/// What a file has.
#[derive(Debug, Default)]
pub(crate) struct Items {
    /// The documentation of the file's module.
    pub(crate) module: Option<String>,
    pub(crate) entries: Vec<Entry>,
    pub(crate) messages: Vec<Message>,
}

/// The items of a parsed file.
pub(crate) fn items(source: &str, file: &syn::File) -> Items {
    let items = Items { module: documentation(&file.attrs), ..Items::default() };
    let mut reader = Reader { source, above: Vec::new(), depth: 0, items };
    file.items.iter().for_each(|item| reader.item(item));
    reader.items
}

struct Reader<'s> {
    source: &'s str,
    /// The modules within the file that the item is in.
    above: Vec<String>,
    depth: usize,
    items: Items,
}

fn is_public(visibility: &Visibility) -> bool {
    match visibility {
        Visibility::Public(_) => true,
        Visibility::Restricted(_) | Visibility::Inherited => false,
    }
}

impl Reader<'_> {
    fn item(&mut self, item: &Item) {
        match item {
            Item::Fn(item) if is_public(&item.vis) => {
                let ends = item.block.brace_token.span.open().byte_range();
                let name = item.sig.ident.to_string();
                if self.entry(&name, "function", &item.attrs, Some(ends)) {
                    let name = self.path(&name);
                    self.items.messages.extend(messages::of_function(&name, &item.block));
                }
            }
            Item::Struct(item) if is_public(&item.vis) => self.structure(item),
            Item::Enum(item) if is_public(&item.vis) => self.enumeration(item),
            Item::Union(item) if is_public(&item.vis) => {
                let ends = item.fields.brace_token.span.open().byte_range();
                self.entry(&item.ident.to_string(), "union", &item.attrs, Some(ends));
            }
            Item::Trait(item) if is_public(&item.vis) => self.interface(item),
            Item::Const(item) if is_public(&item.vis) => {
                self.entry(&item.ident.to_string(), "constant", &item.attrs, Some(item.eq_token.span.byte_range()));
            }
            Item::Static(item) if is_public(&item.vis) => {
                self.entry(&item.ident.to_string(), "static", &item.attrs, Some(item.eq_token.span.byte_range()));
            }
            Item::Type(item) if is_public(&item.vis) => {
                let ends = item.semi_token.span.byte_range();
                self.entry(&item.ident.to_string(), "type alias", &item.attrs, Some(ends));
            }
            Item::Impl(item) => self.implementation(item),
            Item::Mod(item) if is_public(&item.vis) => self.module(item),
            Item::Macro(item) => self.invocation(item),
            // Private items, imports, and what a newer parser may have.
            _ => {}
        }
    }

    fn path(&self, name: &str) -> String {
        let above = self.above.iter().map(String::as_str);
        above.chain([name]).collect::<Vec<_>>().join("::")
    }

    /// The text of the source from the end of the attributes to a place.
    fn signature(&self, attributes: &[Attribute], ends: Range<usize>) -> String {
        let begin = end(attributes).unwrap_or(ends.start);
        let text = self.source.get(begin..ends.start).unwrap_or_default();
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        match text.char_indices().nth(LONGEST_SIGNATURE) {
            Some((end, _)) => format!("{} …", &text[..end]),
            None => text,
        }
    }

    /// Adds the item if it has documentation, and returns whether it has.
    fn entry(&mut self, name: &str, kind: &'static str, attributes: &[Attribute], ends: Option<Range<usize>>) -> bool {
        let documentation = documentation(attributes).filter(|_| !is_left_out(attributes));
        let Some(documentation) = documentation else { return false };
        let signature = ends.map(|ends| self.signature(attributes, ends)).unwrap_or_default();
        self.items.entries.push(Entry { name: self.path(name), kind, signature, documentation, parts: None });
        true
    }

    fn structure(&mut self, item: &ItemStruct) {
        let ends = match &item.fields {
            Fields::Named(fields) => Some(fields.brace_token.span.open().byte_range()),
            Fields::Unnamed(_) | Fields::Unit => item.semi_token.as_ref().map(|semi| semi.span.byte_range()),
        };
        let name = item.ident.to_string();
        if self.entry(&name, "struct", &item.attrs, ends) {
            let fields = item.fields.iter().filter(|field| is_public(&field.vis));
            let named = fields.filter_map(|field| Some((field.ident.as_ref()?.to_string(), &field.attrs)));
            self.parts("Fields", named.filter_map(|(name, attributes)| Some((name, documentation(attributes)?))));
        }
        let name = self.path(&name);
        self.items.messages.extend(messages::of_attributes(&name, &item.attrs));
    }

    fn enumeration(&mut self, item: &ItemEnum) {
        let name = item.ident.to_string();
        if self.entry(&name, "enum", &item.attrs, Some(item.brace_token.span.open().byte_range())) {
            let variants = item.variants.iter().filter(|variant| !is_left_out(&variant.attrs));
            let named = variants.map(|variant| (variant.ident.to_string(), documentation(&variant.attrs)));
            self.parts("Variants", named.filter_map(|(name, documentation)| Some((name, documentation?))));
        }
        let name = self.path(&name);
        for variant in &item.variants {
            self.items.messages.extend(messages::of_attributes(&name, &variant.attrs));
        }
    }

    /// Adds parts to the item that was added last.
    fn parts(&mut self, heading: &'static str, parts: impl Iterator<Item = (String, String)>) {
        let parts: Vec<(String, String)> = parts.collect();
        if let Some(entry) = self.items.entries.last_mut().filter(|_| !parts.is_empty()) {
            entry.parts = Some(Parts { heading, parts });
        }
    }

    fn interface(&mut self, item: &ItemTrait) {
        if is_left_out(&item.attrs) {
            return;
        }
        let name = item.ident.to_string();
        self.entry(&name, "trait", &item.attrs, Some(item.brace_token.span.open().byte_range()));
        for item in &item.items {
            match item {
                TraitItem::Fn(item) => {
                    let body = item.default.as_ref().map(|block| block.brace_token.span.open().byte_range());
                    let ends = body.or_else(|| item.semi_token.as_ref().map(|semi| semi.span.byte_range()));
                    let name = format!("{name}::{}", item.sig.ident);
                    if self.entry(&name, "trait method", &item.attrs, ends)
                        && let Some(block) = &item.default
                    {
                        let name = self.path(&name);
                        self.items.messages.extend(messages::of_function(&name, block));
                    }
                }
                TraitItem::Const(item) => {
                    let name = format!("{name}::{}", item.ident);
                    self.entry(&name, "trait constant", &item.attrs, Some(item.semi_token.span.byte_range()));
                }
                TraitItem::Type(item) => {
                    let name = format!("{name}::{}", item.ident);
                    self.entry(&name, "trait type", &item.attrs, Some(item.semi_token.span.byte_range()));
                }
                // Macros, and what a newer parser may have.
                _ => {}
            }
        }
    }

    fn implementation(&mut self, item: &ItemImpl) {
        let Type::Path(of) = &*item.self_ty else { return };
        let Some(of) = of.path.segments.last().map(|segment| segment.ident.to_string()) else { return };
        if let Some((interface, _)) = &item.trait_ {
            if interface.segments.last().is_some_and(|segment| segment.ident == "Display") {
                let name = self.path(&of);
                self.items.messages.extend(messages::of_display(&name, item));
            }
            // Its methods are documented at the trait.
            return;
        }
        if is_left_out(&item.attrs) {
            return;
        }
        for item in &item.items {
            match item {
                ImplItem::Fn(item) if is_public(&item.vis) => {
                    let name = format!("{of}::{}", item.sig.ident);
                    let ends = item.block.brace_token.span.open().byte_range();
                    if self.entry(&name, "method", &item.attrs, Some(ends)) {
                        let name = self.path(&name);
                        self.items.messages.extend(messages::of_function(&name, &item.block));
                    }
                }
                ImplItem::Const(item) if is_public(&item.vis) => {
                    let ends = item.eq_token.span.byte_range();
                    self.entry(&format!("{of}::{}", item.ident), "constant", &item.attrs, Some(ends));
                }
                // Private items, macros, and what a newer parser may have.
                _ => {}
            }
        }
    }

    fn module(&mut self, item: &ItemMod) {
        let Some((_, items)) = &item.content else { return };
        if self.depth == DEEPEST || is_left_out(&item.attrs) {
            return;
        }
        self.entry(&item.ident.to_string(), "module", &item.attrs, None);
        self.depth += 1;
        self.above.push(item.ident.to_string());
        items.iter().for_each(|item| self.item(item));
        self.above.pop();
        self.depth -= 1;
    }

    /// A macro that is defined, or one that is called with items: crates wrap those that need a feature in such macros.
    fn invocation(&mut self, item: &ItemMacro) {
        if let Some(name) = &item.ident {
            if item.attrs.iter().any(|attribute| attribute.path().is_ident("macro_export")) {
                self.entry(&name.to_string(), "macro", &item.attrs, None);
            }
            return;
        }
        if self.depth == DEEPEST || is_left_out(&item.attrs) {
            return;
        }
        if let Ok(within) = syn::parse2::<syn::File>(item.mac.tokens.clone()) {
            self.depth += 1;
            within.items.iter().for_each(|item| self.item(item));
            self.depth -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(source: &str) -> Items {
        items(source, &syn::parse_file(source).unwrap())
    }

    fn names(source: &str) -> Vec<(String, &'static str, String)> {
        of(source).entries.into_iter().map(|entry| (entry.name, entry.kind, entry.signature)).collect()
    }

    fn named(name: &str, kind: &'static str, signature: &str) -> (String, &'static str, String) {
        (name.to_owned(), kind, signature.to_owned())
    }

    #[test]
    fn public_items_with_documentation_are_found_with_their_signatures() {
        let source = "
            /// A.
            #[derive(Debug)]
            pub struct A<T>
            where
                T: Copy,
            { x: T }
            /// B.
            pub struct B(pub u8);
            /// C.
            pub enum C { X }
            /// D.
            pub trait D: Sized {
                /// D::d.
                fn d(&self) -> u8;
                /// D::e.
                fn e(&self) { }
                /// D::F.
                type F: Copy;
                fn g();
            }
            impl<T> A<T> {
                /// A::new.
                pub async fn new(x: T) -> Self { todo!() }
                /// Private.
                fn old() {}
                /// A::N.
                pub const N: u8 = 1;
            }
            impl Clone for B {
                /// No.
                fn clone(&self) -> B { B(0) }
            }
            /// f.
            pub fn f() {}
            /// No.
            pub(crate) fn g() {}
            pub fn h() {}
            /// T.
            pub type T = u8;
        ";
        let expected = [
            named("A", "struct", "pub struct A<T> where T: Copy,"),
            named("B", "struct", "pub struct B(pub u8)"),
            named("C", "enum", "pub enum C"),
            named("D", "trait", "pub trait D: Sized"),
            named("D::d", "trait method", "fn d(&self) -> u8"),
            named("D::e", "trait method", "fn e(&self)"),
            named("D::F", "trait type", "type F: Copy"),
            named("A::new", "method", "pub async fn new(x: T) -> Self"),
            named("A::N", "constant", "pub const N: u8"),
            named("f", "function", "pub fn f()"),
            named("T", "type alias", "pub type T = u8"),
        ];
        assert_eq!(names(source), expected);
    }

    #[test]
    fn items_within_modules_and_macros_are_found_and_hidden_ones_are_not() {
        let source = "
            cfg_rt! {
                /// In a macro.
                pub fn f() {}
            }
            other! { a => b }
            /// M.
            pub mod m {
                /// In M.
                pub fn g() {}
                #[doc(hidden)]
                /// Hidden.
                pub fn h() {}
            }
            mod private {
                /// In private.
                pub fn i() {}
            }
            /// Exported.
            #[macro_export]
            macro_rules! x { () => {} }
            /// Not exported.
            macro_rules! y { () => {} }
        ";
        let expected = [
            named("f", "function", "pub fn f()"),
            named("m", "module", ""),
            named("m::g", "function", "pub fn g()"),
            named("x", "macro", ""),
        ];
        assert_eq!(names(source), expected);
    }

    #[test]
    fn documented_variants_and_fields_are_parts_of_their_item() {
        let source = "
            /// E.
            pub enum E {
                /// One.
                One,
                Two,
            }
            /// S.
            pub struct S {
                /// A.
                pub a: u8,
                /// Private.
                b: u8,
            }
        ";
        let parts: Vec<_> = of(source).entries.into_iter().map(|entry| entry.parts).collect();
        let one =
            |heading, name: &str, text: &str| Some(Parts { heading, parts: vec![(name.to_owned(), text.to_owned())] });
        assert_eq!(parts, [one("Variants", "One", "One."), one("Fields", "a", "A.")]);
    }

    #[test]
    fn modules_deeper_than_the_bound_are_left_out() {
        let (mut open, mut close) = (String::new(), String::new());
        for level in 0..DEEPEST + 3 {
            open += &format!("pub mod m{level} {{ /// F.\npub fn f() {{}} ");
            close += "}";
        }
        assert_eq!(names(&(open + &close)).len(), DEEPEST);
    }
}
