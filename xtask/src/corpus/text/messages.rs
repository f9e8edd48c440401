//! The messages that code makes: of errors that are displayed, and of functions that fail or panic. They are found as string literals.

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Block, Expr, ExprCall, ExprMethodCall, ItemImpl, Lit, LitStr, Macro, Meta};

/// Where a message is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A type that is displayed: an error, if it is one.
    Display,
    /// The body of a function.
    Function,
}

/// A message of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The path of the document of its module.
    pub document: String,
    /// The path of the type or function below that module.
    pub item: String,
    /// The literal, as formats are written: `no such file: {path}`.
    pub text: String,
    /// Where it is made.
    pub origin: Origin,
}

/// A message whose document is not known yet.
fn message(item: &str, text: String, origin: Origin) -> Message {
    Message { document: String::new(), item: item.to_owned(), text, origin }
}

/// The text of `#[error("text")]`, which a type or a variant has.
pub(crate) fn of_attributes(item: &str, attributes: &[Attribute]) -> Vec<Message> {
    let errors = attributes.iter().filter(|attribute| attribute.path().is_ident("error"));
    let lists = errors.filter_map(|attribute| match &attribute.meta {
        Meta::List(list) => Some(list.tokens.clone()),
        Meta::Path(_) | Meta::NameValue(_) => None,
    });
    let first = lists.filter_map(|tokens| literals(tokens).into_iter().next());
    first.map(|text| message(item, text, Origin::Display)).collect()
}

/// The literals of an implementation of `Display`.
pub(crate) fn of_display(item: &str, implementation: &ItemImpl) -> Vec<Message> {
    let mut found = All(Vec::new());
    found.visit_item_impl(implementation);
    found.0.into_iter().map(|text| message(item, text, Origin::Display)).collect()
}

/// The literals of a function with which it panics or makes an error.
pub(crate) fn of_function(item: &str, body: &Block) -> Vec<Message> {
    let mut found = Failures(Vec::new());
    found.visit_block(body);
    found.0.into_iter().map(|text| message(item, text, Origin::Function)).collect()
}

/// The string literals among tokens, also in groups of them.
fn literals(tokens: TokenStream) -> Vec<String> {
    let (mut found, mut open) = (Vec::new(), vec![tokens.into_iter()]);
    while let Some(tokens) = open.last_mut() {
        match tokens.next() {
            Some(TokenTree::Group(group)) => open.push(group.stream().into_iter()),
            Some(TokenTree::Literal(literal)) => {
                if let Ok(text) = syn::parse2::<LitStr>(TokenTree::Literal(literal).into()) {
                    found.push(text.value());
                }
            }
            Some(TokenTree::Ident(_) | TokenTree::Punct(_)) => {}
            None => drop(open.pop()),
        }
    }
    found
}

/// All string literals.
struct All(Vec<String>);

impl Visit<'_> for All {
    fn visit_lit_str(&mut self, literal: &LitStr) {
        self.0.push(literal.value());
    }

    fn visit_macro(&mut self, called: &Macro) {
        self.0.extend(literals(called.tokens.clone()));
    }

    fn visit_attribute(&mut self, _: &Attribute) {}
}

/// The string literals of macros, methods and functions that fail.
struct Failures(Vec<String>);

/// Macros whose text is a failure.
const MACROS: [&str; 10] =
    ["panic", "assert", "assert_eq", "assert_ne", "unreachable", "err", "bail", "ensure", "format_err", "anyhow"];

impl Visit<'_> for Failures {
    fn visit_macro(&mut self, called: &Macro) {
        let name = called.path.segments.last().map(|segment| segment.ident.to_string());
        if name.is_some_and(|name| MACROS.contains(&name.as_str())) {
            self.0.extend(literals(called.tokens.clone()));
        }
    }

    fn visit_expr_method_call(&mut self, call: &ExprMethodCall) {
        if call.method == "expect" {
            self.0.extend(call.args.iter().filter_map(literal));
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_expr_call(&mut self, call: &ExprCall) {
        if let Expr::Path(function) = &*call.func {
            let is_error = |name: String| name.ends_with("Error") || name == "Err";
            if function.path.segments.iter().any(|segment| is_error(segment.ident.to_string())) {
                self.0.extend(call.args.iter().filter_map(literal));
            }
        }
        visit::visit_expr_call(self, call);
    }
}

fn literal(expression: &Expr) -> Option<String> {
    match expression {
        Expr::Lit(value) => match &value.lit {
            Lit::Str(text) => Some(text.value()),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::items::items;
    use super::*;

    #[test]
    fn messages_of_errors_and_failures_are_found_with_their_item() {
        let source = "
            /// E.
            pub enum E {
                #[error(\"no file {path}\")]
                NoFile { path: String },
            }
            impl std::fmt::Display for F {
                fn fmt(&self, f: &mut Formatter<'_>) -> Result {
                    if self.0 { f.write_str(\"is closed\") } else { write!(f, \"{} is open\", self.1) }
                }
            }
            impl F {
                /// Opens.
                pub fn open(&self) -> Result<(), E> {
                    log(\"nothing\");
                    assert!(self.ok, \"is not ok\");
                    self.lock().expect(\"the lock\");
                    Err(io::Error::new(Kind, \"is broken\"))
                }
            }
        ";
        let found = items(source, &syn::parse_file(source).unwrap()).messages;
        let found: Vec<(&str, &str, Origin)> =
            found.iter().map(|message| (message.item.as_str(), message.text.as_str(), message.origin)).collect();
        let expected = [
            ("E", "no file {path}", Origin::Display),
            ("F", "is closed", Origin::Display),
            ("F", "{} is open", Origin::Display),
            ("F::open", "is not ok", Origin::Function),
            ("F::open", "the lock", Origin::Function),
            ("F::open", "is broken", Origin::Function),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn literals_in_groups_of_tokens_are_found_in_their_order() {
        let tokens: TokenStream = "(\"a\", [\"b\" x], r\"c\", 'd', 1)".parse().unwrap();
        assert_eq!(literals(tokens), ["a", "b", "c"]);
    }
}
