//! The definitions of the agents that come with the library.

use callboard_documents::Defects;

use super::BuiltIn;
use crate::definition::Definition;

impl BuiltIn {
    /// Those whose names none of these definitions has: a definition of the user's takes the place of the one of its name.
    ///
    /// ```
    /// use callboard_agents::{BuiltIn, Definition};
    /// let own = Definition::from_toml("summarizer.toml", "[agent]\nname = \"summarizer\"")?;
    /// let left: Vec<_> = BuiltIn::beside(&[own]).map(BuiltIn::name).collect();
    /// assert_eq!(left, ["compactor", "enricher", "capability_gap", "complexity"]);
    /// # Ok::<(), callboard_agents::Defects>(())
    /// ```
    pub fn beside(definitions: &[Definition]) -> impl Iterator<Item = Self> {
        let is_replaced = |agent: &Self| definitions.iter().any(|own| own.name.as_str() == agent.name());
        Self::ALL.into_iter().filter(move |agent| !is_replaced(agent))
    }

    /// How it is declared. It can be changed before an agent is made of it; its tier stays.
    #[must_use]
    pub fn definition(self) -> Definition {
        match self.read() {
            Ok(definition) => definition,
            Err(defects) => unreachable!("what is compiled in was read by a test: {defects}"),
        }
    }

    fn read(self) -> Result<Definition, Defects> {
        let text = match self {
            Self::Summarizer => include_str!("summarizer.toml"),
            Self::Compactor => include_str!("compactor.toml"),
            Self::Enricher => include_str!("enricher.toml"),
            Self::CapabilityGap => include_str!("capability_gap.toml"),
            Self::Complexity => include_str!("complexity.toml"),
        };
        Definition::reader().built_in().read(self.name(), text)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use serde_json::json;

    use super::*;
    use crate::CapabilityGap;
    use crate::{OutputSchema, Tier};
    use callboard::actors::Mode;
    use callboard::messages::Complexity;

    #[test]
    fn each_is_read_from_its_text_and_has_neither_tools_nor_effects() {
        for agent in BuiltIn::ALL {
            let definition = agent.read().unwrap_or_else(|defects| panic!("{defects}"));
            assert_eq!((definition.name.as_str(), definition.tier()), (agent.name(), Tier::BuiltIn));
            assert_eq!(
                (definition.mode, definition.allowed_tools.as_deref()),
                (Mode::Explore, Some(&[][..])),
                "{agent}"
            );
            assert_eq!(definition.namespaces.as_deref(), Some(&[][..]), "{agent}");
            assert!(!definition.description.is_empty() && definition.system_prompt.len() > 200, "{agent}");
            assert_eq!(BuiltIn::of(agent.name()), Some(agent));
        }
    }

    #[test]
    fn typed_answers_are_what_their_schemas_take() {
        let schema = |agent: BuiltIn| agent.definition().output.unwrap();
        let classes = [Complexity::Simple, Complexity::Medium, Complexity::Complex];
        for class in classes {
            let text = serde_json::to_string(&class).unwrap();
            assert_eq!(schema(BuiltIn::Complexity).read(&text).unwrap().parse::<Complexity>().unwrap(), class);
        }
        assert_eq!(schema(BuiltIn::Complexity).schema()["enum"].as_array().unwrap().len(), classes.len());
        let gap = CapabilityGap { missing_tools: vec!["mail: sends it".to_owned()], ..CapabilityGap::default() };
        let read = schema(BuiltIn::CapabilityGap).read(&serde_json::to_string(&gap).unwrap()).unwrap();
        assert_eq!(read.parse::<CapabilityGap>().unwrap(), gap);
        assert!(!gap.is_empty() && CapabilityGap::default().is_empty());
        schema(BuiltIn::CapabilityGap).read("{\"missing_tools\": []}").unwrap_err();
        let wanted = OutputSchema::new(schemars::schema_for!(CapabilityGap).to_value()).unwrap();
        wanted.read(&json!({ "missing_tools": [], "missing_agents": [], "why": "" }).to_string()).unwrap();
    }

    #[test]
    fn a_file_cannot_claim_to_be_compiled_in_and_takes_the_place_of_one_by_its_name() {
        let text = "[agent]\nname = \"complexity\"\n[agent.capabilities]\ntrust_tier = \"built_in\"";
        Definition::from_toml("a", text).unwrap_err();
        let own = Definition::from_toml("a", "[agent]\nname = \"complexity\"").unwrap();
        assert_eq!(own.tier(), Tier::UserDefined);
        assert_eq!(BuiltIn::beside(&[own]).count(), 4);
        assert_eq!(BuiltIn::beside(&[]).count(), 5);
    }
}
