//! Where cargo keeps the packages of the corpus. Those that the workspace has in its lock file are there already; others are fetched by a
//! manifest that is made for it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;
use thiserror::Error;

use super::list::Listed;
use crate::commands::cargo;

/// Why the packages are not there.
#[derive(Debug, Error)]
pub enum FetchError {
    /// cargo has refused.
    #[error("cargo metadata in {0}: {1}")]
    Cargo(PathBuf, String),
    /// The manifest cannot be written.
    #[error("{0}: {1}")]
    Io(PathBuf, io::Error),
    /// cargo has resolved the manifest without the package.
    #[error("cargo has no folder for {0} {1}")]
    Absent(String, String),
}

/// The folders of the packages by their names. A manifest for those that are in no lock file is written to `fetched`.
pub(crate) fn folders(
    workspace: &Path,
    fetched: &Path,
    list: &[Listed],
) -> Result<BTreeMap<String, PathBuf>, FetchError> {
    let mut found = resolved(workspace, &["--locked"], list)?;
    let others: Vec<&Listed> = list.iter().filter(|listed| !found.contains_key(&listed.name)).collect();
    if !others.is_empty() {
        write_manifest(fetched, &others).map_err(|error| FetchError::Io(fetched.to_owned(), error))?;
        found.extend(resolved(fetched, &[], list)?);
    }
    match list.iter().find(|listed| !found.contains_key(&listed.name)) {
        Some(absent) => Err(FetchError::Absent(absent.name.clone(), absent.version.clone())),
        None => Ok(found),
    }
}

/// The folders of those packages of the list that the manifest in a folder resolves to.
fn resolved(folder: &Path, arguments: &[&str], list: &[Listed]) -> Result<BTreeMap<String, PathBuf>, FetchError> {
    let failed = |why: String| FetchError::Cargo(folder.to_owned(), why);
    let mut command = cargo();
    command.args(["metadata", "--format-version", "1"]).args(arguments).current_dir(folder);
    let output = command.output().map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    let metadata: Value = serde_json::from_slice(&output.stdout).map_err(|error| failed(error.to_string()))?;
    Ok(listed_folders(&metadata, list))
}

fn listed_folders(metadata: &Value, list: &[Listed]) -> BTreeMap<String, PathBuf> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let folder = |package: &Value| {
        let (name, version) = (package["name"].as_str()?, package["version"].as_str()?);
        let is_listed = list.iter().any(|listed| listed.name == name && listed.version == version);
        let folder = Path::new(package["manifest_path"].as_str()?).parent()?;
        // A package of this workspace has no source.
        (is_listed && package["source"].is_string()).then(|| (name.to_owned(), folder.to_owned()))
    };
    packages.filter_map(folder).collect()
}

/// Writes the manifest if it is another than the one that is there, and then without what the earlier one has resolved to.
fn write_manifest(folder: &Path, list: &[&Listed]) -> io::Result<()> {
    let (path, text) = (folder.join("Cargo.toml"), manifest(list));
    if fs::read_to_string(&path).is_ok_and(|before| before == text) {
        return Ok(());
    }
    fs::create_dir_all(folder.join("src"))?;
    fs::write(folder.join("src/lib.rs"), "")?;
    match fs::remove_file(folder.join("Cargo.lock")) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    fs::write(path, text)
}

/// A manifest that depends on the packages in their exact versions, with as few others as possible.
fn manifest(list: &[&Listed]) -> String {
    let mut text =
        "[package]\nname = \"corpus\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n[dependencies]\n"
            .to_owned();
    for Listed { name, version, .. } in list {
        // Build metadata is no part of a requirement.
        let version = version.split('+').next().unwrap_or_default();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name} = {{ version = \"={version}\", default-features = false }}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(name: &str, version: &str) -> Listed {
        Listed { name: name.to_owned(), version: version.to_owned(), sha256: String::new(), ci: false }
    }

    #[test]
    fn the_manifest_pins_each_package() {
        let text = manifest(&[&listed("one", "1.2.3"), &listed("two", "0.1.0+abc")]);
        assert!(text.ends_with(
            "[dependencies]\none = { version = \"=1.2.3\", default-features = false }\ntwo = { version = \"=0.1.0\", default-features = false }\n"
        ));
    }

    #[test]
    fn what_was_resolved_is_kept_as_long_as_the_list_is_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let lock = folder.path().join("Cargo.lock");
        write_manifest(folder.path(), &[&listed("one", "1.0.0")]).unwrap();
        fs::write(&lock, "").unwrap();
        write_manifest(folder.path(), &[&listed("one", "1.0.0")]).unwrap();
        assert!(lock.exists());
        write_manifest(folder.path(), &[&listed("one", "1.0.1")]).unwrap();
        assert!(!lock.exists());
    }

    #[test]
    fn only_packages_of_the_listed_version_and_of_a_registry_are_found() {
        let package = |version: &str, source: Option<&str>| serde_json::json!({ "name": "one", "version": version, "source": source, "manifest_path": format!("/p/{version}/Cargo.toml") });
        let metadata = serde_json::json!({ "packages": [package("1.0.0", Some("registry")), package("2.0.0", Some("registry")), package("3.0.0", None)] });
        let found = |version| listed_folders(&metadata, &[listed("one", version)]);
        assert_eq!(found("2.0.0"), BTreeMap::from([("one".to_owned(), PathBuf::from("/p/2.0.0"))]));
        assert!(found("3.0.0").is_empty() && found("4.0.0").is_empty());
    }
}
