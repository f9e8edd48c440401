//! The unit for systemd and the file for containers: they parse, and what they set exists.

use std::collections::BTreeSet;
use std::process::Command;

use crate::support::{CALLBOARD, content, folder_with, output_of};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

#[test]
fn the_unit_is_one_that_systemd_reads_without_a_warning() {
    let unit = content(ROOT, "packaging/systemd/callboard.service").unwrap();
    assert!(unit.contains("\nExecStart=/usr/bin/callboard serve\n"), "{unit}");
    assert_are_documented(&unit);
    let folder = folder_with(&[("callboard.service", &unit.replace("/usr/bin/callboard", CALLBOARD))]);
    let mut verify = Command::new("systemd-analyze");
    verify.args(["verify", "--man=no"]).arg(folder.path().join("callboard.service"));
    match verify.output() {
        Ok(output) => {
            let text = [output.stdout, output.stderr].concat();
            assert!(output.status.success() && text.is_empty(), "{}", String::from_utf8_lossy(&text));
        }
        Err(error) => eprintln!("systemd-analyze does not run here: {error}"),
    }
}

#[test]
fn the_file_for_containers_has_known_instructions_and_starts_the_server() {
    const KNOWN: [&str; 12] = [
        "FROM",
        "WORKDIR",
        "COPY",
        "RUN",
        "USER",
        "ENV",
        "VOLUME",
        "EXPOSE",
        "STOPSIGNAL",
        "ENTRYPOINT",
        "CMD",
        "HEALTHCHECK",
    ];
    let text = content(ROOT, "packaging/container/Containerfile").unwrap();
    let instructions: Vec<(&str, &str)> = text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| line.split_once(' ').unwrap_or_else(|| panic!("{line}")))
        .collect();
    assert!(instructions.iter().all(|(name, _)| KNOWN.contains(name)), "{instructions:?}");
    let values = |name: &str| -> Vec<&str> {
        instructions.iter().filter(|(known, _)| *known == name).map(|(_, value)| *value).collect()
    };
    let version = content(ROOT, "Cargo.toml").unwrap();
    let version =
        version.lines().find_map(|line| line.strip_prefix("rust-version = ")).unwrap().trim_matches('"').to_owned();
    assert_eq!(values("FROM")[0], format!("docker.io/library/rust:{version}-slim-bookworm AS build"));
    assert!(values("COPY").contains(&"--from=build /source/target/release/callboard /usr/bin/callboard"));
    let command =
        [values("ENTRYPOINT")[0], values("CMD")[0]].map(|value| serde_json::from_str::<Vec<String>>(value).unwrap());
    assert_eq!(command.concat(), ["/usr/bin/callboard", "serve"]);
    assert_are_documented(&text);
    // What it sets is taken: only the certificate is missing.
    let folder = folder_with(&[("agents/a.toml", "[agent]\nname = \"a\"\n")]);
    let mut serve = crate::support::command(&folder, &["serve"]);
    let variables = values("ENV")[0]
        .split(' ')
        .filter_map(|pair| pair.split_once('='))
        .filter(|(name, _)| name.starts_with("CALLBOARD"));
    let refused = output_of(serve.envs(variables));
    assert!(
        refused.error.contains("0.0.0.0:7420: other machines reach this address, and there is no TLS"),
        "{}",
        refused.error
    );
}

/// Each variable of callboard is in the table of settings.
fn assert_are_documented(text: &str) {
    let page = content(ROOT, "docs/configuration.md").unwrap();
    let is_part = |c: char| c.is_ascii_uppercase() || c == '_';
    let names: BTreeSet<&str> =
        text.split(|c: char| !is_part(c)).filter(|word| word.starts_with("CALLBOARD_")).collect();
    assert!(!names.is_empty() && names.iter().all(|name| page.contains(&format!("`{name}`"))), "{names:?}");
}
