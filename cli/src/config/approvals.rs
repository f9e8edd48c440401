//! `[groups]` and `[[approvals]]`: which people are in which group, and of which actions several of them decide.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use callboard::actors::PolicyQuestion;
use callboard::messages::{ActionKind, Consent, Deciders, Escalation, Groups};
use callboard_agents::{MetaTool, Tools};
use callboard_documents::toml::{DeValue, Fields, Item, boolean, count, duration, list, mismatch, string, text, word};
use callboard_documents::{Defect, Found, Place, Placed};
use callboard_text::{check_name, did_you_mean, quoted, typo_of};

const GROUPS: &str = "write [groups], and below it ops = [\"ann\", \"bob\"]";
const MAKE_ABLE: &str = "write `tokens` for people of [people], or accounts where they are asked";
const RULES: &str = "write [[approvals]], and below it group = \"ops\" and at_least = 2";
/// The longest name of a group, in characters.
const MAX_NAME: usize = 64;
/// The action of handoffs.
const HANDOFF: &str = "handoff";
/// How long approvals of a server wait for people: nothing there sets another time.
const APPROVALS_END: Duration = Duration::from_secs(7 * 24 * 3_600);

/// The groups, and the rules about who decides.
#[derive(Clone, Debug, Default)]
pub(crate) struct Section {
    /// The people of each group, with their places.
    groups: BTreeMap<String, Vec<Placed<String>>>,
    rules: Vec<Rule>,
    /// Groups that rules name, with their places and how many people each has at least.
    named: Vec<(String, Place, Needed)>,
    /// How many people have to approve by rules without a group, with their places.
    of_all: Vec<Placed<u32>>,
    /// The agents and the actions that rules name, with their places.
    agents: Vec<Placed<String>>,
    actions: Vec<Placed<String>>,
}

/// How many people of a group have to approve, whether one more is needed, because whoever asks does not decide, and whether people of
/// another group may decide later.
#[derive(Clone, Copy, Debug)]
struct Needed {
    at_least: u32,
    besides_requester: bool,
    escalates: bool,
}

/// Who decides about some actions: the first rule that is about an action counts.
#[derive(Clone, Debug)]
struct Rule {
    kind: ActionKind,
    /// The agents and the actions that it is about; all if there are none.
    agents: BTreeSet<String>,
    actions: BTreeSet<String>,
    deciders: Arc<Deciders>,
    place: Place,
}

impl Rule {
    /// Whether it is about everything that another one is about.
    fn covers(&self, other: &Self) -> bool {
        let has_all = |own: &BTreeSet<String>, of_other: &BTreeSet<String>| {
            own.is_empty() || (!of_other.is_empty() && of_other.is_subset(own))
        };
        self.kind == other.kind && has_all(&self.agents, &other.agents) && has_all(&self.actions, &other.actions)
    }
}

impl Section {
    pub(super) fn read_groups(&mut self, item: &Item<'_>, found: &mut Found) {
        let DeValue::Table(table) = item.get_ref() else {
            found.add(mismatch("the section `groups`", "a table", item).advise(GROUPS));
            return;
        };
        for (name, item) in table.iter() {
            if let Err(error) = check_name("group", name.get_ref(), MAX_NAME) {
                found.add(Defect::new(&Some(name.span()), error.to_string()));
            }
            let people = list(("a group", item), GROUPS, found).iter();
            let people = people.filter_map(|item| {
                let value = string("a person", "the name of one", item, found)?.to_owned();
                Some(Placed { value, place: Some(item.span()) })
            });
            self.groups.insert(name.get_ref().to_string(), people.collect());
        }
    }

    pub(super) fn read_rules(&mut self, item: &Item<'_>, found: &mut Found) {
        for item in list(("approvals", item), RULES, found) {
            if let Some(rule) = self.rule(item, found) {
                self.rules.push(rule);
            }
        }
    }

    fn rule(&mut self, item: &Item<'_>, found: &mut Found) -> Option<Rule> {
        let mut fields = Fields::of("a rule of `approvals`", item, RULES, found)?;
        let [agents, actions] = ["agents", "actions"].map(|key| names(key, &mut fields, found));
        let name = |placed: &Vec<Placed<String>>| placed.iter().map(|placed| placed.value.clone()).collect();
        let (of_agents, of_actions) = (name(&agents), name(&actions));
        let kinds = [("requested", ActionKind::Requested), ("handoff", ActionKind::Handoff)];
        let kind = fields.field("kind").and_then(|field| word(field, &kinds, found)).unwrap_or(ActionKind::Requested);
        let group = fields.field("group");
        let (has_group, group) = (group.is_some(), group.and_then(|field| text(field, found)));
        let least = fields.field("at_least").and_then(|field| count(field, found));
        let excludes_requester = fields.field("exclude_requester").and_then(|field| boolean(field, found));
        let [after, to] = ["escalate_after", "escalate_to"].map(|key| fields.field(key));
        let are_together = after.is_some() == to.is_some();
        let after = after.and_then(|field| duration(field, found));
        let to = to.and_then(|field| text(field, found));
        fields.close(found);
        if !are_together {
            let problem = "`escalate_after` and `escalate_to` belong together";
            found.add(Defect::new(&Some(item.span()), problem).advise("write both, or none of them"));
        }
        check_escalation(has_group, group.as_ref(), after.as_ref(), to.as_ref(), found);
        let of_other = |action: &&Placed<String>| kind == ActionKind::Handoff && action.value != HANDOFF;
        for action in actions.iter().filter(of_other) {
            let problem = format!("a rule about handoffs is never about the action {}", quoted(&action.value));
            found.add(Defect::new(&action.place, problem).advise("remove `actions`, or remove `kind`"));
        }
        let (at_least, excludes_requester) =
            (least.as_ref().map_or(1, |least| least.value), excludes_requester.unwrap_or(false));
        let escalates = to.is_some();
        let needed = Needed { at_least, besides_requester: excludes_requester && !escalates, escalates };
        self.of_all.extend(least.filter(|_| !has_group));
        self.named.extend(group.iter().map(|group| (group.value.clone(), group.place.clone(), needed)));
        let one = Needed { at_least: 1, besides_requester: false, escalates: false };
        self.named.extend(to.iter().map(|group| (group.value.clone(), group.place.clone(), one)));
        self.agents.extend(agents);
        self.actions.extend(actions.into_iter().filter(|_| kind == ActionKind::Requested));
        let escalation = after.zip(to).map(|(after, to)| Escalation { after: after.value, group: to.value.into() });
        let group = group.map(|group| group.value.into());
        Some(Rule {
            kind,
            agents: of_agents,
            actions: of_actions,
            deciders: Arc::new(Deciders { group, at_least, excludes_requester, escalation }),
            place: Some(item.span()),
        })
    }

    /// The defects of rules for which too few people can decide, of those who can.
    pub(super) fn undecidable(&self, able: &BTreeSet<String>) -> Vec<Defect> {
        let mut found = Vec::new();
        for (group, place, Needed { at_least, escalates, .. }) in &self.named {
            let members: BTreeSet<&str> = self.groups.get(group).into_iter().flatten().map(|it| &*it.value).collect();
            let can = members.iter().filter(|member| able.contains(**member)).count();
            let problem = match can {
                0 if !members.is_empty() => format!("nobody of {} can decide", quoted(group)),
                _ if can >= *at_least as usize || *escalates => continue,
                _ => format!("{at_least} of {} have to approve, and {can} of them can decide", quoted(group)),
            };
            found.push(Defect::new(place, problem).advise(MAKE_ABLE));
        }
        for Placed { value: at_least, place } in &self.of_all {
            if able.len() < *at_least as usize {
                let problem = format!("{at_least} people have to approve, and {} can decide", able.len());
                found.push(Defect::new(place, problem).advise(MAKE_ABLE));
            }
        }
        found
    }

    /// The defects of people and groups that are not there, of groups with fewer people than have to approve, and of rules that never count.
    pub(super) fn check(&self, people: &BTreeSet<String>, found: &mut Found) {
        for person in self.groups.values().flatten().filter(|person| !people.contains(&person.value)) {
            let likely = did_you_mean(typo_of(&person.value, people.iter().map(String::as_str)));
            let problem = format!("there is no person {}{likely}", quoted(&person.value));
            found.add(Defect::new(&person.place, problem).advise("add them to [people], or remove them here"));
        }
        for (position, rule) in self.rules.iter().enumerate() {
            if let Some(earlier) = self.rules[..position].iter().position(|earlier| earlier.covers(rule)) {
                let problem = format!("this rule never counts: rule {} is before it, and about the same", earlier + 1);
                found.add(Defect::new(&rule.place, problem).advise("put it before that one, or remove it"));
            }
        }
        for (group, place, Needed { at_least, besides_requester, .. }) in &self.named {
            let Some(members) = self.groups.get(group) else {
                let likely = did_you_mean(typo_of(group, self.groups.keys().map(String::as_str)));
                let problem = format!("there is no group {}{likely}", quoted(group));
                found.add(Defect::new(place, problem).advise("add it to [groups], or name another one"));
                continue;
            };
            let members: BTreeSet<&str> = members.iter().map(|person| &*person.value).collect();
            if members.len() < *at_least as usize {
                let problem = format!("{at_least} of {} have to approve, which has {}", quoted(group), members.len());
                found.add(Defect::new(place, problem).advise("add people to the group, or set `at_least` lower"));
            } else if *besides_requester && members.len() == *at_least as usize {
                let problem = format!(
                    "what one of {} asks for could not be approved: {at_least} others have to, and there are {}",
                    quoted(group),
                    members.len() - 1
                );
                let advice = "add people to the group, set `at_least` lower, or add `escalate_after` and `escalate_to`";
                found.add(Defect::new(place, problem).advise(advice));
            }
        }
    }

    /// The defects of agents and of actions that are not there: a rule about them would be about nothing. `are_whole` says that the tools
    /// of servers are known.
    pub(super) fn unknown(&self, tools: &Tools, are_whole: bool, agents: &BTreeSet<String>) -> Vec<Defect> {
        let defect = |what: &str, named: &Placed<String>, likely: Option<&str>| {
            let problem = format!("there is no {what} {}{}", quoted(&named.value), did_you_mean(likely));
            Defect::new(&named.place, problem).advise("correct it, or remove it here")
        };
        let mut found = Vec::new();
        for agent in self.agents.iter().filter(|agent| !agents.contains(&agent.value)) {
            found.push(defect("agent", agent, typo_of(&agent.value, agents.iter().map(String::as_str))));
        }
        let may_be_there = |name: &str| !are_whole && name.starts_with("mcp__");
        let known: Vec<&str> = tools.names().chain(MetaTool::ALL.map(MetaTool::name)).collect();
        for action in self.actions.iter().filter(|action| !may_be_there(&action.value)) {
            if !known.contains(&&*action.value) {
                found.push(defect("action", action, typo_of(&action.value, known.iter().copied())));
            }
        }
        found
    }

    /// The groups, for a board.
    pub(crate) fn groups(&self) -> Groups {
        self.groups.iter().fold(Groups::default(), |groups, (name, people)| {
            groups.group(name, people.iter().map(|person| Arc::<str>::from(&*person.value)))
        })
    }

    /// What a board answers about an action.
    pub(crate) fn consent(&self, question: &PolicyQuestion<'_>) -> Consent {
        let usual = question.default_consent();
        let is_about = |names: &BTreeSet<String>, name: &str| names.is_empty() || names.contains(name);
        let rule = self.rules.iter().find(|rule| {
            rule.kind == question.kind
                && is_about(&rule.agents, question.agent.as_str())
                && is_about(&rule.actions, &question.action.action)
        });
        match rule {
            Some(rule) if rule.kind == ActionKind::Handoff || usual != Consent::Auto => {
                usual.strictest(Consent::AskOf { deciders: Arc::clone(&rule.deciders), within: None })
            }
            Some(_) | None => usual,
        }
    }
}

/// The defects of an escalation by which nobody more could decide.
fn check_escalation(
    has_group: bool,
    group: Option<&Placed<String>>,
    after: Option<&Placed<Duration>>,
    to: Option<&Placed<String>>,
    found: &mut Found,
) {
    const REMOVE: &str = "or remove `escalate_after` and `escalate_to`";
    if let Some(after) = after.filter(|after| after.value >= APPROVALS_END) {
        let problem = "approvals expire after 7d, so nobody would decide after `escalate_after`";
        found.add(Defect::new(&after.place, problem).advise(format!("write a shorter time, {REMOVE}")));
    }
    let Some(to) = to else { return };
    if !has_group {
        let problem = "without `group` everybody decides from the beginning, so `escalate_to` adds nobody";
        found.add(Defect::new(&to.place, problem).advise(format!("add `group`, {REMOVE}")));
    } else if group.is_some_and(|group| group.value == to.value) {
        let problem =
            format!("the group {} decides from the beginning, so `escalate_to` adds nobody", quoted(&to.value));
        found.add(Defect::new(&to.place, problem).advise(format!("name another group, {REMOVE}")));
    }
}

fn names(key: &'static str, fields: &mut Fields<'_>, found: &mut Found) -> Vec<Placed<String>> {
    let Some(field) = fields.field(key) else { return Vec::new() };
    let items = list(field, RULES, found);
    if items.is_empty() && field.1.get_ref().as_array().is_some() {
        let problem = format!("`{key}` is empty");
        let advice = format!("name some, or remove `{key}`: the rule is about all {key} then");
        found.add(Defect::new(&Some(field.1.span()), problem).advise(advice));
    }
    let name = |item: &Item<'_>, found: &mut Found| {
        Some(Placed { value: string("a name", "a text", item, found)?.to_owned(), place: Some(item.span()) })
    };
    items.iter().filter_map(|item| name(item, found)).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use callboard::actors::Mode;
    use callboard::messages::{Action, AgentName};
    use callboard_documents::toml;

    use super::*;

    #[test]
    fn the_first_rule_about_an_action_says_who_decides() {
        let text = "[groups]\nops = [\"ann\", \"bob\"]\nleads = [\"cat\"]\n\
            [[approvals]]\nagents = [\"coder\"]\nactions = [\"ShellExec\"]\ngroup = \"ops\"\nat_least = 2\nexclude_requester = true\n\
            escalate_after = \"2h\"\nescalate_to = \"leads\"\n\
            [[approvals]]\nkind = \"handoff\"\ngroup = \"leads\"\n";
        let mut found = Found::default();
        let section = toml::read(text, "", &mut found, |document, found| {
            let (mut section, mut fields) = (Section::default(), Fields::document("it", document));
            section.read_groups(fields.get("groups").unwrap(), found);
            section.read_rules(fields.get("approvals").unwrap(), found);
            section
        });
        let section = found.or(section).unwrap();
        let consent = |agent: &str, kind, action: &str, mode| {
            let (agent, action) = (AgentName::new(agent).unwrap(), Action::new(action, "x", ""));
            let question =
                PolicyQuestion { agent: &agent, mode, has_effects: false, kind, action: &action, each_time: false };
            match section.consent(&question) {
                Consent::AskOf { deciders, .. } => deciders.to_string(),
                other => format!("{other:?}"),
            }
        };
        let (requested, handoff) = (ActionKind::Requested, ActionKind::Handoff);
        for (agent, kind, action, mode, expected) in [
            ("coder", requested, "ShellExec", Mode::Build, "2 of ops, not the requester"),
            ("coder", requested, "FileWrite", Mode::Build, "Ask"),
            ("tester", requested, "ShellExec", Mode::Build, "Ask"),
            ("coder", requested, "ShellExec", Mode::Plan, "Auto"),
            ("tester", handoff, "handoff", Mode::Build, "1 of leads"),
        ] {
            assert_eq!(consent(agent, kind, action, mode), expected, "{agent} {action}");
        }
    }
}
