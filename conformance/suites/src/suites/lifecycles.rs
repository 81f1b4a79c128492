//! Lifecycles of Azure objects: an upstream client creates, reads, lists, changes and deletes them, and reports
//! the outcome of each step. The files of `conformance/lifecycles` list the steps with their expected outcomes,
//! for the clients of all languages.

mod expected_step;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use libtest_mimic::{Failed, Trial};
use serde::Deserialize;
use serde_json::{Map, Value};
use thiserror::Error;

use self::expected_step::{ExpectedStep, ExpectedStepError, StepOutcome};
use crate::client_program::{ClientInputs, ClientProgram, LifecycleOutput};
use crate::file_error::FileError;

/// A file with the steps of a lifecycle is invalid.
#[derive(Debug, Error)]
pub(crate) enum LifecycleFileError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("{} is not a list of steps", path.display())]
    Yaml {
        path: PathBuf,
        #[source]
        source: Box<serde_saphyr::Error>,
    },
    #[error("{} is invalid", path.display())]
    InvalidStep {
        path: PathBuf,
        #[source]
        source: ExpectedStepError,
    },
    #[error("{} has no step for the client `{client}`", path.display())]
    NoStep { path: PathBuf, client: &'static str },
}

/// A client program with the lifecycles that it implements.
#[derive(Debug)]
pub(crate) struct LifecycleClient {
    /// The name of the client, such as `python`.
    pub(crate) name: &'static str,
    pub(crate) program: ClientProgram,
    /// The names of the lifecycles, which are also those of their files.
    pub(crate) lifecycles: &'static [&'static str],
}

/// A step of a lifecycle with its outcome, as the client prints it.
#[derive(Debug, Deserialize)]
struct ReportedStep {
    step: String,
    #[serde(flatten)]
    outcome: StepOutcome,
}

/// A lifecycle that runs once, for the trials of all its steps.
#[derive(Debug)]
struct LifecycleRun {
    lifecycle: &'static str,
    program: ClientProgram,
    inputs: ClientInputs,
    steps: Vec<ExpectedStep>,
    outcome: OnceLock<Result<LifecycleOutcome, String>>,
}

/// The reported steps, and why the program failed after them.
#[derive(Debug)]
struct LifecycleOutcome {
    steps: Vec<ReportedStep>,
    failure: Option<String>,
}

/// The trials of the steps of a client's lifecycles. The trials of all first steps come first, because each
/// runs a lifecycle, and so several run at the same time.
pub(crate) fn trials(
    client: &LifecycleClient,
    inputs: &ClientInputs,
    directory: &Path,
) -> Result<Vec<Trial>, LifecycleFileError> {
    let (mut first_trials, mut later_trials) = (Vec::new(), Vec::new());
    for lifecycle in client.lifecycles {
        let run = Arc::new(LifecycleRun {
            lifecycle,
            program: client.program.clone(),
            inputs: inputs.clone(),
            steps: load_steps(directory, lifecycle, client.name, inputs)?,
            outcome: OnceLock::new(),
        });
        let mut trials = (0..run.steps.len()).map(|index| {
            let run = Arc::clone(&run);
            let name = format!("{}::{lifecycle}::{}", client.name, run.steps[index].name());
            Trial::test(name, move || run.check_step(index))
        });
        first_trials.extend(trials.next());
        later_trials.extend(trials);
    }
    first_trials.extend(later_trials);
    Ok(first_trials)
}

/// Loads the steps of a lifecycle that a client implements.
fn load_steps(
    directory: &Path,
    lifecycle: &str,
    client: &'static str,
    inputs: &ClientInputs,
) -> Result<Vec<ExpectedStep>, LifecycleFileError> {
    let path = directory.join(format!("{lifecycle}.yaml"));
    let text = fs::read_to_string(&path).map_err(FileError::of("read", &path))?;
    let rows: Vec<expected_step::StepRow> = serde_saphyr::from_str(&text).map_err(|source| {
        LifecycleFileError::Yaml { path: path.clone(), source: Box::new(source) }
    })?;
    let variables = lifecycle_variables(inputs);
    let steps = rows.into_iter().filter(|row| row.is_for(client));
    let steps: Vec<ExpectedStep> = steps
        .map(|row| ExpectedStep::parse(row, client, &variables))
        .collect::<Result<_, _>>()
        .map_err(|source| LifecycleFileError::InvalidStep { path: path.clone(), source })?;
    if steps.is_empty() {
        return Err(LifecycleFileError::NoStep { path, client });
    }
    Ok(steps)
}

/// The variables of the expected values.
fn lifecycle_variables(inputs: &ClientInputs) -> Map<String, Value> {
    let host = inputs.vault.trim_start_matches("https://");
    [
        ("tenant", &*inputs.tenant),
        ("subscription", &inputs.subscription),
        ("client", &inputs.client),
        ("object_id", &inputs.object_id),
        ("vault", &inputs.vault),
        ("vault_name", host.split('.').next().unwrap_or_default()),
        ("storage_account", &inputs.storage_account),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value.into()))
    .collect()
}

impl LifecycleRun {
    fn check_step(&self, index: usize) -> Result<(), Failed> {
        let outcome = self.outcome.get_or_init(|| self.run()).as_ref().map_err(Clone::clone)?;
        let expected = &self.steps[index];
        let Some(reported) = outcome.steps.get(index) else {
            let reason = outcome.failure.as_deref().unwrap_or("the client ended before this step");
            return Err(reason.into());
        };
        if reported.step != expected.name() {
            return Err(format!("the client reported the step `{}`", reported.step).into());
        }
        let problems = expected.find_problems(&reported.outcome);
        if !problems.is_empty() {
            return Err(problems.join("\n").into());
        }
        if index + 1 < self.steps.len() {
            return Ok(());
        }
        if let Some(next) = outcome.steps.get(index + 1) {
            return Err(format!("the client reported the additional step `{}`", next.step).into());
        }
        match &outcome.failure {
            Some(reason) => Err(format!("after the last step: {reason}").into()),
            None => Ok(()),
        }
    }

    fn run(&self) -> Result<LifecycleOutcome, String> {
        let LifecycleOutput { lines, failure } = self
            .program
            .run_lifecycle(self.lifecycle, &self.inputs)
            .map_err(|error| error.to_string())?;
        let steps = lines
            .iter()
            .map(|line| {
                serde_json::from_str(line)
                    .map_err(|error| format!("the client printed no step: {line}: {error}"))
            })
            .collect::<Result<_, _>>()?;
        Ok(LifecycleOutcome { steps, failure: failure.map(|error| error.to_string()) })
    }
}

#[cfg(test)]
mod tests;
