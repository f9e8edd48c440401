//! Reads the schema that an agent's answer has to match.

use callboard_documents::toml::{Fields, Item, placed_json};
use callboard_documents::{Defect, Found};

use crate::output::OutputSchema;

const EXAMPLE: &str = "write [agent.output.schema], and below it type = \"object\"";

/// The schema of the answer.
pub(super) fn output(item: &Item<'_>, found: &mut Found) -> Option<OutputSchema> {
    let mut fields = Fields::of("the output of an agent", item, EXAMPLE, found)?;
    let schema = fields.required("schema", EXAMPLE, found).and_then(|(_, item)| placed_json(item, found));
    fields.close(found);
    let schema = schema?;
    match OutputSchema::new(schema.value) {
        Ok(schema) => Some(schema),
        Err(problem) => {
            found.add(Defect::new(&schema.place, format!("the schema of the output: {problem}")));
            None
        }
    }
}
