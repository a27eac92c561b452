//! The workspace as `cargo metadata` tells it: its root, its packages, what they depend on.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::{Result, command::Line};

/// The workspace that the command was started in.
#[derive(Debug)]
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    /// Cargo's folder for what it builds.
    pub(crate) target: PathBuf,
    pub(crate) packages: Vec<Package>,
}

/// A member of the workspace.
#[derive(Clone, Debug, Default)]
pub(crate) struct Package {
    pub(crate) name: String,
    /// Its folder, relative to the root.
    pub(crate) folder: String,
    pub(crate) license: Option<String>,
    pub(crate) dependencies: Vec<Dependency>,
    /// Its features, without `default`.
    pub(crate) features: Vec<String>,
    /// The root files of its library and its programs, relative to the workspace's root.
    pub(crate) crate_roots: Vec<String>,
}

/// One line of a dependency table.
#[derive(Clone, Debug)]
pub(crate) struct Dependency {
    /// The package's own name, whatever it is renamed to.
    pub(crate) package: String,
    /// Whether only tests, examples and benchmarks see it.
    pub(crate) dev: bool,
}

impl Workspace {
    /// Asks cargo, which finds the workspace from the current folder.
    pub(crate) fn load() -> Result<Workspace> {
        let line = Line::new("cargo metadata --format-version 1 --no-deps --locked");
        let metadata = serde_json::from_str(&line.output()?).map_err(|why| format!("`{line}` gave no JSON: {why}"))?;
        Workspace::from_metadata(&metadata).ok_or_else(|| format!("`{line}` gave JSON of an unknown form"))
    }

    fn from_metadata(metadata: &Value) -> Option<Workspace> {
        let root = PathBuf::from(metadata["workspace_root"].as_str()?);
        let target = PathBuf::from(metadata["target_directory"].as_str()?);
        let packages = metadata["packages"].as_array()?.iter().map(|package| Package::from_metadata(package, &root));
        Some(Workspace { packages: packages.collect::<Option<_>>()?, root, target })
    }

    /// Whether the lock file names a package, so whether some crate can ask for it.
    pub(crate) fn locks(&self, package: &str) -> Result<bool> {
        let path = self.root.join("Cargo.lock");
        let lock = std::fs::read_to_string(&path).map_err(|why| format!("cannot read {}: {why}", path.display()))?;
        let wanted = format!("name = \"{package}\"");
        Ok(lock.lines().any(|line| line == wanted))
    }
}

impl Package {
    fn from_metadata(package: &Value, root: &Path) -> Option<Package> {
        let relative = |path: &Value| Some(Path::new(path.as_str()?).strip_prefix(root).ok()?.to_str()?.to_owned());
        let manifest = relative(&package["manifest_path"])?;
        let mut crate_roots = Vec::new();
        for target in package["targets"].as_array()? {
            if target["kind"].as_array()?.iter().any(|kind| ["lib", "bin"].contains(&kind.as_str().unwrap_or_default())) {
                crate_roots.push(relative(&target["src_path"])?);
            }
        }
        let mut dependencies = Vec::new();
        for dependency in package["dependencies"].as_array()? {
            let (package, kind) = (dependency["name"].as_str()?, dependency["kind"].as_str());
            dependencies.push(Dependency { package: package.to_owned(), dev: kind == Some("dev") });
        }
        Some(Package {
            name: package["name"].as_str()?.to_owned(),
            folder: manifest.strip_suffix("Cargo.toml")?.trim_end_matches('/').to_owned(),
            license: package["license"].as_str().map(str::to_owned),
            dependencies,
            features: package["features"].as_object()?.keys().filter(|name| *name != "default").cloned().collect(),
            crate_roots,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_read() {
        let metadata = serde_json::json!({
            "workspace_root": "/tree", "target_directory": "/tree/target",
            "packages": [{
                "name": "pinrail-plan", "manifest_path": "/tree/crates/pinrail-plan/Cargo.toml", "license": "MIT",
                "features": {"default": [], "files": ["dep:toml"]},
                "dependencies": [{"name": "pinrail-core", "kind": null}, {"name": "proptest", "kind": "dev"}],
                "targets": [
                    {"kind": ["lib"], "src_path": "/tree/crates/pinrail-plan/src/lib.rs"},
                    {"kind": ["test"], "src_path": "/tree/crates/pinrail-plan/tests/it/main.rs"},
                ],
            }],
        });
        let workspace = Workspace::from_metadata(&metadata).unwrap();
        let plan = &workspace.packages[0];
        assert_eq!((plan.name.as_str(), plan.folder.as_str()), ("pinrail-plan", "crates/pinrail-plan"));
        assert_eq!((plan.license.as_deref(), plan.features.as_slice()), (Some("MIT"), ["files".to_owned()].as_slice()));
        assert_eq!(plan.crate_roots, ["crates/pinrail-plan/src/lib.rs"]);
        assert_eq!(
            plan.dependencies.iter().map(|d| (d.package.as_str(), d.dev)).collect::<Vec<_>>(),
            [("pinrail-core", false), ("proptest", true)]
        );
    }

    #[test]
    fn metadata_of_another_form_is_refused() {
        assert!(Workspace::from_metadata(&serde_json::json!({"packages": []})).is_none());
    }
}
