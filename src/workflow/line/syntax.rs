//! Parses tokens to steps.

use std::ops::Range;

use callboard_documents::{Defect, Placed};
use callboard_text::{cut, did_you_mean, nearest};

use crate::messages::{Condition, JoinPolicy};
use crate::workflow::draft::{Node, WorkDraft};
use crate::workflow::graph::{MAX_NAME, MAX_NODES};

use super::arguments::{Argument, Given, Kind, condition};
use super::defects::DefectList;
use super::steps::{MAX_NESTING, NodeStep, Sequence, Step};
use super::tokens::{Bracket, Token, begins_name, continues_name};

/// Keywords, which cannot be names of nodes.
pub(super) const RESERVED: [&str; 10] =
    ["all", "any", "at_least", "settled", "if", "else", "loop", "map", "block", "join"];

/// The keyword after a node whose failure is handled.
const CATCH: &str = "catch";

/// Parsing cannot continue; the defect is in the list.
struct Stop;

type Parsed<T> = Result<T, Stop>;

type Place = Range<usize>;

/// The name in the header, if there is one, and the steps.
///
/// # Errors
/// What is wrong.
pub(super) fn read(
    tokens: &[(Token<'_>, Place)],
    end: usize,
) -> Result<(Option<Placed<String>>, Sequence), Vec<Defect>> {
    let mut parser = Parser { tokens, at: 0, end, nesting: 0, nodes: 0, found: DefectList::default() };
    let read = parser.workflow().unwrap_or_default();
    parser.found.or(read)
}

/// Whether a name is allowed in a text.
pub(super) fn is_name(name: &str) -> bool {
    let mut chars = name.chars();
    let is_word = chars.next().is_some_and(begins_name) && chars.all(continues_name);
    is_word && name.len() <= MAX_NAME && name != CATCH && !RESERVED.contains(&name)
}

struct Parser<'a> {
    tokens: &'a [(Token<'a>, Place)],
    at: usize,
    /// Where the text ends.
    end: usize,
    nesting: usize,
    nodes: usize,
    found: DefectList,
}

impl<'a> Parser<'a> {
    fn workflow(&mut self) -> Parsed<(Option<Placed<String>>, Sequence)> {
        let name = self.header()?;
        let steps = self.alternatives()?;
        if self.peek().is_some() {
            return Err(self.unexpected("the end", "write `->` between steps that follow each other"));
        }
        Ok((name, steps))
    }

    /// `workflow NAME:`
    fn header(&mut self) -> Parsed<Option<Placed<String>>> {
        let name = match (self.peek(), self.peek_at(1)) {
            (Some(Token::Name("workflow")), Some(Token::Name(name))) => (*name).to_owned(),
            (Some(Token::Name("workflow")), Some(Token::Text(name))) => name.clone(),
            _ => return Ok(None),
        };
        self.at += 1;
        let place = self.place();
        self.at += 1;
        self.expect(&Token::Colon, "write `workflow NAME:` before the first step")?;
        Ok(Some(Placed::at(name, place)))
    }

    /// Sequences side by side, if there are several.
    fn alternatives(&mut self) -> Parsed<Sequence> {
        let start = self.place().start;
        let first = self.sequence()?;
        if self.peek() != Some(&Token::Bar) {
            return Ok(first);
        }
        let mut branches = vec![first];
        while self.eat(&Token::Bar) {
            branches.push(self.sequence()?);
        }
        let place = Some(start..self.last_end());
        Ok(vec![Step::Group { branches, policy: Placed::default(), place }])
    }

    fn sequence(&mut self) -> Parsed<Sequence> {
        let mut steps = self.step()?;
        loop {
            match self.peek() {
                Some(Token::Arrow) => self.at += 1,
                Some(Token::Name("else")) => {
                    return Err(self.unexpected("`->` or `|`", "`else` follows the `}` of `if(…) { … }`"));
                }
                Some(Token::Name(CATCH)) => {
                    return Err(self.unexpected("`->` or `|`", "`catch` follows a node or the `}` of its block"));
                }
                // The steps are unambiguous without the arrow.
                Some(token @ Token::Name(_)) => {
                    let problem = format!("no `->` or `|` before {}", token.shown());
                    let advice = "write `->` between steps that follow each other, and `|` between those side by side";
                    self.found.add(&self.place(), problem, advice);
                    if self.found.is_full() {
                        return Err(Stop);
                    }
                }
                _ => return Ok(steps),
            }
            steps.extend(self.step()?);
        }
    }

    fn step(&mut self) -> Parsed<Sequence> {
        let place = self.place();
        let word = match self.peek() {
            Some(Token::Open(Bracket::Round)) => return self.within(Bracket::Round, Self::alternatives),
            Some(Token::Name(word)) => *word,
            _ => return Err(self.unexpected("a step", "write a node's name, or a group as (a | b)")),
        };
        self.at += 1;
        match word {
            "if" => self.branching(place),
            "all" => self.group(Some(JoinPolicy::All), place),
            "any" => self.group(Some(JoinPolicy::AtLeast(1)), place),
            "settled" => self.group(Some(JoinPolicy::Settled), place),
            "at_least" => self.group(None, place),
            "loop" | "map" | "block" | "join" => {
                let name = Placed { value: String::new(), place: Some(place.clone()) };
                self.kind(name, word, place)
            }
            "else" | CATCH => {
                self.at -= 1;
                Err(self.unexpected("a step", "a node of this name cannot be written here; choose another"))
            }
            _ => self.named(word, place),
        }
        .map(|step| vec![step])
    }

    /// A node that begins with its name.
    fn named(&mut self, name: &str, place: Place) -> Parsed<Step> {
        if name.len() > MAX_NAME {
            let problem = format!("the name has {} bytes; at most {MAX_NAME} are allowed", name.len());
            self.found.add(&place, problem, "choose a shorter name");
            return Err(Stop);
        }
        let name = Placed::at(name.to_owned(), place.clone());
        if !self.eat(&Token::Colon) {
            let arguments = self.arguments()?;
            let agent = WorkDraft::Agent(name.clone());
            return self.node(Node::new(name, agent), Kind::Turn, arguments, &place);
        }
        match self.peek() {
            Some(Token::Open(Bracket::Curly)) => self.kind(name, "block", place),
            Some(Token::Name(word)) => {
                let (word, place) = (*word, self.place());
                self.at += 1;
                self.kind(name, word, place)
            }
            _ => {
                Err(self
                    .unexpected("`{`, `loop`, `map`, `block` or `join`", "write `NAME: { … }` for steps under a name"))
            }
        }
    }

    /// What follows `NAME:`.
    fn kind(&mut self, name: Placed<String>, word: &str, place: Place) -> Parsed<Step> {
        const WORDS: [&str; 4] = ["loop", "map", "block", "join"];
        let kind = match word {
            "loop" => Kind::Loop,
            "map" => Kind::Map,
            "block" => Kind::Block,
            "join" => Kind::Join,
            _ => {
                let problem = format!("`{}` is nothing that a name can stand before", cut(word));
                let advice = "write `loop(…) {`, `map(…) {`, `block(…) {`, `{` or `join` after the `:`";
                self.found.add(&place, problem + &did_you_mean(nearest(word, WORDS).as_deref()), advice);
                return Err(Stop);
            }
        };
        let work = match kind {
            Kind::Join => WorkDraft::Join,
            Kind::Turn | Kind::Loop | Kind::Map | Kind::Block => WorkDraft::Nodes { nodes: Vec::new(), output: None },
        };
        let arguments = self.arguments()?;
        self.node(Node::new(name, work), kind, arguments, &place)
    }

    /// Parses the part of a node after its arguments.
    fn node(&mut self, mut node: Node, kind: Kind, arguments: Vec<Argument<'a>>, place: &Place) -> Parsed<Step> {
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            let problem = format!("the workflow has more than {MAX_NODES} nodes");
            self.found.add(place, problem, "run parts of it as workflows of their own");
            return Err(Stop);
        }
        kind.set(&mut node, arguments, place, &mut self.found);
        let body = match kind {
            Kind::Loop | Kind::Map | Kind::Block => Some(self.within(Bracket::Curly, Self::alternatives)?),
            Kind::Turn | Kind::Join => None,
        };
        let rescue =
            if self.eat(&Token::Name(CATCH)) { Some(self.within(Bracket::Curly, Self::alternatives)?) } else { None };
        Ok(Step::Node(Box::new(NodeStep { node, body, rescue })))
    }

    /// What follows `if`.
    fn branching(&mut self, place: Place) -> Parsed<Step> {
        let given = self.within(Bracket::Round, Self::value)?;
        let condition = condition(given, &mut self.found);
        let condition = condition.unwrap_or_else(|| Placed::made(Condition::Expression("".into())));
        let then = self.within(Bracket::Curly, Self::alternatives)?;
        let otherwise = match (self.eat(&Token::Name("else")), self.peek()) {
            (false, _) => None,
            (true, Some(Token::Name("if"))) => {
                let place = self.place();
                self.deeper(&place)?;
                self.at += 1;
                let inner = self.branching(place)?;
                self.nesting -= 1;
                Some(vec![inner])
            }
            (true, _) => Some(self.within(Bracket::Curly, Self::alternatives)?),
        };
        let place = Some(place.start..self.last_end());
        Ok(Step::If { condition, then, otherwise, place })
    }

    /// What follows the word for a policy. Without a policy, the number of branches is in the text.
    fn group(&mut self, policy: Option<JoinPolicy>, word: Place) -> Parsed<Step> {
        let (policy, branches) = self.within(Bracket::Round, |parser| {
            let policy = match policy {
                Some(policy) => policy,
                None => JoinPolicy::AtLeast(parser.count()?),
            };
            let mut branches = vec![parser.alternatives()?];
            while parser.eat(&Token::Comma) && parser.peek() != Some(&Token::Close(Bracket::Round)) {
                branches.push(parser.alternatives()?);
            }
            Ok((policy, branches))
        })?;
        if branches.len() < 2 {
            let advice = "write the branches with commas between them, as any(a, b -> c)";
            self.found.add(&word, "a group of one branch", advice);
        }
        let place = Some(word.start..self.last_end());
        Ok(Step::Group { branches, policy: Placed::at(policy, word), place })
    }

    fn count(&mut self) -> Parsed<u32> {
        let count = match self.peek() {
            Some(Token::Number(number)) => number.as_u64().and_then(|number| u32::try_from(number).ok()),
            _ => None,
        };
        let Some(count) = count else {
            return Err(self.unexpected("a whole number", "write how many branches it takes, as at_least(2, a, b, c)"));
        };
        self.at += 1;
        self.expect(&Token::Comma, "write the branches after the number, as at_least(2, a, b, c)")?;
        Ok(count)
    }

    fn arguments(&mut self) -> Parsed<Vec<Argument<'a>>> {
        if self.peek() != Some(&Token::Open(Bracket::Round)) {
            return Ok(Vec::new());
        }
        self.list(Bracket::Round, |parser| {
            let advice = "arguments are written key=value; a group after a node follows `->`";
            let Some(Token::Name(key)) = parser.peek() else {
                return Err(parser.unexpected("a key", advice));
            };
            let key = Placed::at(*key, parser.place());
            parser.at += 1;
            parser.expect(&Token::Equals, advice)?;
            Ok((key, parser.value()?))
        })
    }

    fn value(&mut self) -> Parsed<Placed<Given<'a>>> {
        let start = self.place();
        let given = match self.peek() {
            Some(Token::Text(text)) => Given::Value(text.clone().into()),
            Some(Token::Number(number)) => Given::Value(number.clone().into()),
            Some(Token::Name("true")) => Given::Value(true.into()),
            Some(Token::Name("false")) => Given::Value(false.into()),
            Some(Token::Name("null")) => Given::Value(().into()),
            Some(Token::Open(Bracket::Square)) => {
                let items = self.list(Bracket::Square, Self::value)?;
                return Ok(Placed::at(Given::List(items), start.start..self.last_end()));
            }
            Some(Token::Open(Bracket::Curly)) => {
                let fields = self.list(Bracket::Curly, Self::field)?;
                return Ok(Placed::at(Given::Object(fields), start.start..self.last_end()));
            }
            Some(Token::Name(word)) if self.peek_at(1) == Some(&Token::Open(Bracket::Round)) => {
                let word = *word;
                self.at += 1;
                let given = self.list(Bracket::Round, Self::value)?;
                return Ok(Placed::at(Given::Call(word, given), start.start..self.last_end()));
            }
            Some(Token::Name(word)) => {
                let problem = format!("`{}` is no value", cut(word));
                self.found.add(&start, problem, format!("write it in double quotes: \"{}\"", cut(word)));
                Given::Wrong
            }
            _ => {
                return Err(self
                    .unexpected("a value", "write a text in double quotes, a number, true, false, null, [ ] or { }"));
            }
        };
        self.at += 1;
        Ok(Placed::at(given, start))
    }

    fn field(&mut self) -> Parsed<(Placed<String>, Placed<Given<'a>>)> {
        let key = match self.peek() {
            Some(Token::Name(key)) => (*key).to_owned(),
            Some(Token::Text(key)) => key.clone(),
            _ => return Err(self.unexpected("a key", "write objects as {key: value}")),
        };
        let place = self.place();
        self.at += 1;
        self.expect(&Token::Colon, "write objects as {key: value}")?;
        Ok((Placed::at(key, place), self.value()?))
    }

    /// Items with commas between them, and perhaps one at the end.
    fn list<T>(&mut self, bracket: Bracket, item: impl Fn(&mut Self) -> Parsed<T>) -> Parsed<Vec<T>> {
        self.within(bracket, |parser| {
            let mut items = Vec::new();
            while parser.peek() != Some(&Token::Close(bracket)) {
                items.push(item(parser)?);
                if !parser.eat(&Token::Comma) {
                    break;
                }
            }
            Ok(items)
        })
    }

    fn within<T>(&mut self, bracket: Bracket, inside: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        let place = self.place();
        let advice = match bracket {
            Bracket::Round => "write what belongs to it in ( ); no node can be named by this word",
            Bracket::Square => "write what belongs to it in [ ]",
            Bracket::Curly => "write the steps that belong to it in { }",
        };
        self.expect(&Token::Open(bracket), advice)?;
        self.deeper(&place)?;
        let read = inside(self)?;
        self.nesting -= 1;
        let advice = match bracket {
            Bracket::Round | Bracket::Square => {
                "write `,` between what stands in brackets, and `->` or `|` between steps"
            }
            Bracket::Curly => "write `->` or `|` between steps, and `,` between the fields of an object",
        };
        self.expect(&Token::Close(bracket), advice)?;
        Ok(read)
    }

    fn deeper(&mut self, place: &Place) -> Parsed<()> {
        self.nesting += 1;
        if self.nesting > MAX_NESTING {
            let problem = format!("this is nested deeper than {MAX_NESTING} levels");
            self.found.add(place, problem, "run parts of it as workflows of their own");
            return Err(Stop);
        }
        Ok(())
    }

    fn peek(&self) -> Option<&'a Token<'a>> {
        self.peek_at(0)
    }

    fn peek_at(&self, ahead: usize) -> Option<&'a Token<'a>> {
        self.tokens.get(self.at + ahead).map(|(token, _)| token)
    }

    fn eat(&mut self, token: &Token<'_>) -> bool {
        let is_there = self.peek() == Some(token);
        self.at += usize::from(is_there);
        is_there
    }

    fn expect(&mut self, token: &Token<'_>, advice: &str) -> Parsed<()> {
        if self.eat(token) { Ok(()) } else { Err(self.unexpected(&token.shown(), advice)) }
    }

    /// The position of the next token.
    fn place(&self) -> Place {
        self.tokens.get(self.at).map_or(self.end..self.end, |(_, place)| place.clone())
    }

    /// The end of the previous token.
    fn last_end(&self) -> usize {
        self.tokens[..self.at].last().map_or(0, |(_, place)| place.end)
    }

    fn unexpected(&mut self, expected: &str, advice: &str) -> Stop {
        let seen = self.peek().map_or("the end of the text".to_owned(), Token::shown);
        self.found.add(&self.place(), format!("{seen} where {expected} should be"), advice);
        Stop
    }
}
