//! Where etcd and kube-apiserver are on this machine.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The programs of a control plane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Programs {
    /// The program etcd.
    pub etcd: PathBuf,
    /// The program kube-apiserver.
    pub kube_apiserver: PathBuf,
}

/// Where programs are looked for, in this order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProgramPlaces {
    /// `KUBEBUILDER_ASSETS`: a directory with both, as `setup-envtest` makes it.
    pub assets: Option<PathBuf>,
    /// `PATH`.
    pub path: Option<OsString>,
    /// The tools that `cargo xtask tools` installs: below it `node/kubernetes-<version>-<pins>/`.
    pub tools: Option<PathBuf>,
}

/// The programs are nowhere.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no etcd with a kube-apiserver: {}", listed(looked))]
pub struct NoPrograms {
    /// Where they were looked for, and what is missing there.
    pub looked: Vec<Looked>,
}

/// A place without the programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Looked {
    /// What the place is called.
    pub place: &'static str,
    /// Where it is; nothing where that is not set.
    pub at: Option<String>,
}

impl NoPrograms {
    /// What to do next.
    pub const fn hint(&self) -> &'static str {
        "set KUBEBUILDER_ASSETS to the directory that `setup-envtest use -p path` prints, or let \
         `cargo xtask cluster up` of a checkout build them once (sudo drops what is set: sudo env \
         \"PATH=$PATH\" \"KUBEBUILDER_ASSETS=$KUBEBUILDER_ASSETS\" lanyard …); with --kubeconfig none \
         is needed"
    }
}

impl Programs {
    /// Looks for both programs: the first place that has them wins.
    ///
    /// # Errors
    ///
    /// Every place that was looked at.
    pub fn find(places: &ProgramPlaces) -> Result<Self, NoPrograms> {
        let assets = places.assets.as_deref().and_then(Self::in_directory);
        let found = assets.or_else(|| Self::on_path(places.path.as_ref()?)).or_else(|| {
            newest_tools(places.tools.as_deref()?).as_deref().and_then(Self::in_directory)
        });
        found.ok_or_else(|| NoPrograms {
            looked: vec![
                Looked { place: "KUBEBUILDER_ASSETS", at: places.assets.as_deref().map(shown) },
                Looked {
                    place: "PATH",
                    at: places.path.is_some().then(|| "no directory of it has both".to_owned()),
                },
                Looked {
                    place: "tool cache",
                    at: places.tools.as_deref().map(|tools| shown(&tools.join("node"))),
                },
            ],
        })
    }

    fn in_directory(directory: &Path) -> Option<Self> {
        let program = |name| Some(directory.join(name)).filter(|path| path.is_file());
        Some(Self { etcd: program(ETCD)?, kube_apiserver: program(KUBE_APISERVER)? })
    }

    fn on_path(path: &OsString) -> Option<Self> {
        let program =
            |name| std::env::split_paths(path).map(|it| it.join(name)).find(|path| path.is_file());
        Some(Self { etcd: program(ETCD)?, kube_apiserver: program(KUBE_APISERVER)? })
    }
}

impl fmt::Display for Looked {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.at {
            Some(at) => write!(formatter, "{} ({at})", self.place),
            None => write!(formatter, "{} (not set)", self.place),
        }
    }
}

/// The tools of the newest Kubernetes, and of several builds of it the youngest.
fn newest_tools(tools: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(tools.join("node")).ok()?;
    let ranked = entries.filter_map(|entry| {
        let entry = entry.ok()?;
        let name = entry.file_name();
        let version = version_of(name.to_str()?)?;
        Programs::in_directory(&entry.path())?;
        let age = entry.metadata().and_then(|it| it.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
        Some(((version, age), entry.path()))
    });
    ranked.max_by_key(|(rank, _)| *rank).map(|(_, path)| path)
}

/// The version in `kubernetes-<major>.<minor>-<pins>`.
fn version_of(name: &str) -> Option<(u32, u32)> {
    let (version, _pins) = name.strip_prefix("kubernetes-")?.split_once('-')?;
    let (major, minor) = version.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn listed(looked: &[Looked]) -> String {
    let places: Vec<_> = looked.iter().map(ToString::to_string).collect();
    format!("looked in {}", places.join(", "))
}

const ETCD: &str = "etcd";
const KUBE_APISERVER: &str = "kube-apiserver";

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(root: &Path, name: &str, programs: &[&str]) -> PathBuf {
        let place = root.join(name);
        std::fs::create_dir_all(&place).unwrap();
        for program in programs {
            std::fs::write(place.join(program), "").unwrap();
        }
        place
    }

    #[test]
    fn the_first_place_with_both_programs_wins() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let both = [ETCD, KUBE_APISERVER];
        let half = directory(root, "half", &[ETCD]);
        let one = directory(root, "one", &[KUBE_APISERVER]);
        let whole = directory(root, "whole", &both);
        let tool = directory(root, "tools/node/kubernetes-1.36-b", &both);
        let tools = Some(root.join("tools"));
        let path = |places: &[&PathBuf]| std::env::join_paths(places).ok();
        let found = |places: ProgramPlaces| Programs::find(&places).unwrap().kube_apiserver;

        let all = ProgramPlaces {
            assets: Some(whole.clone()),
            path: path(&[&half, &one]),
            tools: tools.clone(),
        };
        assert_eq!(found(all.clone()), whole.join(KUBE_APISERVER));
        let without = ProgramPlaces { assets: Some(half.clone()), ..all };
        assert_eq!(found(without), one.join(KUBE_APISERVER), "a PATH has them in two directories");
        let tools_alone = ProgramPlaces { assets: None, path: path(&[&half]), tools };
        assert_eq!(found(tools_alone), tool.join(KUBE_APISERVER));
    }

    #[test]
    fn the_newest_version_of_the_tool_cache_is_taken_by_number() {
        let root = tempfile::tempdir().unwrap();
        let both = [ETCD, KUBE_APISERVER];
        for (name, programs) in [
            ("kubernetes-1.9-a", &both[..]),
            ("kubernetes-1.34-a", &both),
            ("kubernetes-1.36-a", &both),
            ("kubernetes-1.40-half", &both[..1]),
            ("other", &both),
        ] {
            directory(&root.path().join("node"), name, programs);
        }
        let newest = newest_tools(root.path()).unwrap();
        assert!(newest.ends_with("kubernetes-1.36-a"), "{}", newest.display());
    }

    #[test]
    fn programs_that_are_nowhere_are_an_error_with_every_place() {
        let places = ProgramPlaces {
            assets: None,
            path: Some("/nonexistent/bin".into()),
            tools: Some("/nonexistent/tools".into()),
        };
        let error = Programs::find(&places).unwrap_err();
        let told = error.to_string();
        for place in ["KUBEBUILDER_ASSETS (not set)", "PATH", "/nonexistent/tools/node"] {
            assert!(told.contains(place), "{place} is not in {told}");
        }
        assert!(error.hint().contains("setup-envtest"));
    }
}
