//! Names that leave no doubt about what they name, and untrusted text made visible.
//!
//! [`callboard`](https://docs.rs/callboard) checks with this what agents, channels and namespaces are called, and passes
//! through it every text that comes from outside before a person reads it on a terminal or in a log.
//!
//! ```
//! use callboard_text::{check_name, did_you_mean, nearest, quoted};
//! assert!(check_name("agent", "reviewer", 57).is_ok());
//! assert!(check_name("agent", "re\u{200b}viewer", 57).is_err());
//! let likely = nearest("reviwer", ["coder", "reviewer"]);
//! assert_eq!(did_you_mean(likely.as_deref()), "; did you mean \"reviewer\"?");
//! assert_eq!(quoted("red\u{1b}[31m"), "\"red\\u{1b}[31m\"");
//! ```

mod names;
mod shell;
mod visible;

pub use names::{
    MADE_BY, NameError, NameProblem, Unfit, check_channel, check_key, check_name, check_own_name, did_you_mean,
    disguised, look_alike, looks, nearest, typo_of,
};
pub use shell::shell_word;
pub use visible::{cut, exact, is_unseen, quoted, visible, visible_lines};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
