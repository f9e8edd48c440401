//! Reads the prompt of an agent and its sections.

use std::collections::BTreeSet;

use callboard::actors::Mode;
use callboard_documents::toml::{DeValue, Field, Fields, Item, list, text};
use callboard_documents::{Defect, Found, Place, Placed};
use callboard_text::quoted;

use super::fields::mode;
use crate::definition::Definition;
use crate::prompt::{Prompt, Section};
use crate::tool::Tools;

const EXAMPLE_SECTION: &str = "write [[agent.sections]], and below it name = \"…\" and text = \"…\"";

pub(super) fn sections(field: Field<'_>, found: &mut Found) -> Vec<Placed<Section>> {
    let items = list(field, EXAMPLE_SECTION, found);
    let section = |item: &Item<'_>, found: &mut Found| {
        let mut fields = Fields::of("a section of a prompt", item, EXAMPLE_SECTION, found)?;
        let name = fields.required("name", EXAMPLE_SECTION, found).and_then(|field| text(field, found));
        let content = fields.required("text", EXAMPLE_SECTION, found).and_then(|field| text(field, found));
        let priorities = fields.field("priority").map(|field| priorities(field, found));
        let (priority, priorities) = priorities.unwrap_or_default();
        let modes = fields.field("modes").map(|(key, item)| {
            let modes = list((key, item), "write modes = [\"build\"]", found);
            modes.iter().filter_map(|item| mode(("modes", item), found)).collect()
        });
        fields.close(found);
        let (name, content) = (name?, content?);
        let section = Section {
            name: name.value.into(),
            priority: priority.unwrap_or(60),
            priorities,
            modes: modes.unwrap_or_default(),
            text: content.value.into(),
        };
        Some(Placed { value: section, place: content.place })
    };
    items.iter().filter_map(|item| section(item, found)).collect()
}

/// The highest priority.
const MAX_PRIORITY: u32 = 1_000;

/// One priority for all modes, or one for each named mode.
fn priorities((key, item): Field<'_>, found: &mut Found) -> (Option<u16>, Vec<(Mode, u16)>) {
    if !matches!(item.get_ref(), DeValue::Table(_)) {
        return (priority((key, item), found), Vec::new());
    }
    const EXAMPLE: &str = "write priority = { plan = 5, build = 70 }";
    let Some(mut fields) = Fields::of("the priority of a section", item, EXAMPLE, found) else {
        return Default::default();
    };
    let modes = [Mode::Build, Mode::Plan, Mode::Explore, Mode::General];
    let named = modes.into_iter().filter_map(|mode| {
        let field = fields.field(mode.name())?;
        Some((mode, priority(field, found)?))
    });
    let named = named.collect();
    fields.close(found);
    (None, named)
}

fn priority(field: Field<'_>, found: &mut Found) -> Option<u16> {
    let (_, item) = field;
    let number = item.get_ref().as_integer().and_then(|number| number.as_str().parse::<u32>().ok());
    let number = number.filter(|number| *number <= MAX_PRIORITY);
    if number.is_none() {
        let problem = format!("`priority` must be a whole number from 0 to {MAX_PRIORITY}");
        found.add(Defect::new(&Some(item.span()), problem));
    }
    number.and_then(|number| u16::try_from(number).ok())
}

/// Compiles the prompt once, to check it.
pub(super) fn check_prompt(
    definition: &mut Definition,
    prompt: Option<Placed<String>>,
    sections: Vec<Placed<Section>>,
    found: &mut Found,
) {
    let (prompt_place, prompt) = prompt.map(|prompt| (prompt.place, prompt.value)).unwrap_or_default();
    // All sections, whatever the mode: another definition may replace this one in another mode.
    let mut wrong = |place: &Place, own: &str, sections: &[Section]| {
        let mode = sections.first().and_then(|section| section.modes.first()).copied();
        if let Err((_, fault)) = Prompt::of(own, sections, mode.unwrap_or(definition.mode), &Tools::new()) {
            found.add(Defect { problem: fault.problem, advice: fault.advice, place: place.clone() });
        }
    };
    wrong(&prompt_place, &prompt, &[]);
    let mut names = BTreeSet::new();
    for section in &sections {
        wrong(&section.place, "", std::slice::from_ref(&section.value));
    }
    for section in &sections {
        if !names.insert(section.value.name.clone()) {
            let problem = format!("two sections are named {}", quoted(&section.value.name));
            found.add(Defect::new(&section.place, problem).advise("give one of them another name"));
        }
    }
    definition.system_prompt = prompt;
    definition.sections = sections.into_iter().map(|section| section.value).collect();
}
