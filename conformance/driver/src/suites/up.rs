//! `lanyard up` by way of a real kube-apiserver: of its own, and of a kubeconfig, with the real
//! controllers of Kubernetes behind it. Whatever happens, nothing may be left.

mod beside;
mod given;
mod guarded;
mod own;
mod running;

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use libtest_mimic::{Failed, Trial};
use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::chain;

/// Everything that the trials of this suite need.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) lanyard: PathBuf,
    /// The programs of Kubernetes, in the layout of `KUBEBUILDER_ASSETS`.
    pub(crate) programs: PathBuf,
    pub(crate) repository: PathBuf,
    pub(crate) hosted_cluster: PathBuf,
}

pub(crate) fn trials(stage: Stage) -> Vec<Trial> {
    let stage = Arc::new(stage);
    let mut trials = own::trials(&stage);
    trials.extend(guarded::trials(&stage));
    trials.extend(given::trials(&stage));
    trials.extend(beside::trials(&stage));
    trials
}

/// A trial in a directory of its own, which is empty at its end: what `up` makes is in there.
fn trial(
    name: &str,
    stage: &Arc<Stage>,
    run: impl AsyncFnOnce(&Scene<'_>) -> Result<(), Failed> + Send + 'static,
) -> Trial {
    let stage = Arc::clone(stage);
    Trial::test(name, move || {
        let scene = Scene {
            stage: &stage,
            temporary: tempfile::tempdir().map_err(chain)?,
            beside: tempfile::tempdir().map_err(chain)?,
        };
        stage.runtime.block_on(run(&scene))?;
        scene.is_clean()
    })
}

/// A trial.
#[derive(Debug)]
struct Scene<'a> {
    stage: &'a Stage,
    /// `TMPDIR` of `lanyard up`.
    temporary: TempDir,
    /// What else the trial needs.
    beside: TempDir,
}

impl Scene<'_> {
    /// `lanyard up` with these arguments.
    fn up(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.stage.lanyard);
        command.arg("up").args(arguments);
        command.env("TMPDIR", self.temporary.path());
        command.env("KUBEBUILDER_ASSETS", &self.stage.programs);
        command.env_remove("HTTPS_PROXY");
        command
    }

    /// Nothing is left: no file, no mount, no process.
    fn is_clean(&self) -> Result<(), Failed> {
        let mut left = Vec::new();
        for entry in std::fs::read_dir(self.temporary.path()).map_err(chain)? {
            left.push(entry.map_err(chain)?.path().display().to_string());
        }
        left.extend(self.mounts()?);
        left.extend(self.processes()?.into_iter().map(|process| process.join(" ")));
        if left.is_empty() { Ok(()) } else { Err(format!("left behind: {left:#?}").into()) }
    }

    /// What is mounted where `lanyard up` makes its directories.
    fn mounts(&self) -> Result<Vec<String>, Failed> {
        let place = self.temporary.path().display().to_string();
        let mounts = std::fs::read_to_string("/proc/self/mounts").map_err(chain)?;
        Ok(mounts.lines().filter(|line| line.contains(&place)).map(str::to_owned).collect())
    }

    /// The arguments of each process that was told something there.
    fn processes(&self) -> Result<Vec<Vec<String>>, Failed> {
        let place = self.temporary.path().display().to_string();
        let mut found = Vec::new();
        for process in std::fs::read_dir("/proc").map_err(chain)? {
            let command = process.map_err(chain)?.path().join("cmdline");
            // Processes come and go.
            let told = std::fs::read(command).unwrap_or_default();
            let told = String::from_utf8_lossy(&told).into_owned();
            if told.contains(&place) {
                found.push(told.split('\0').map(str::to_owned).collect());
            }
        }
        Ok(found)
    }
}

/// How a run ended.
#[derive(Debug)]
struct Ended {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Ended {
    /// Runs to the end.
    fn of(mut command: Command) -> Result<Self, Failed> {
        let output = command.output().map_err(chain)?;
        Ok(Self {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    fn expect_code(&self, code: i32) -> Result<(), Failed> {
        expect(self.code == Some(code), || format!("not {code}: {self:#?}"))
    }

    fn report(&self) -> Result<Value, Failed> {
        serde_json::from_str(&self.stdout).map_err(|error| format!("{error}: {self:#?}").into())
    }
}

fn expect(is_so: bool, otherwise: impl FnOnce() -> String) -> Result<(), Failed> {
    if is_so { Ok(()) } else { Err(otherwise().into()) }
}

/// The rows of a report: component, and the hop that failed.
fn blamed(report: &Value) -> Result<Vec<(String, Option<String>)>, Failed> {
    let components = report["components"].as_array().ok_or("there are no components")?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let rows = components.iter().map(|component| {
        let hops = component["hops"].as_array().map(Vec::as_slice).unwrap_or_default();
        let failed = hops.iter().find(|hop| hop["ok"] != true).map(|hop| text(&hop["name"]));
        (text(&component["name"]), failed)
    });
    Ok(rows.collect())
}

/// Nine rows, all good, by way of Kubernetes.
fn expect_all_good(report: &Value) -> Result<(), Failed> {
    let rows = blamed(report)?;
    let is_good = report["road"] == "kubernetes"
        && report["ok"] == true
        && report["server"]["version"].as_str().is_some_and(|it| it.starts_with('v'))
        && rows.len() == 9
        && rows.iter().all(|(_, failed)| failed.is_none());
    expect(is_good, || format!("{report:#}"))
}
