//! Our requests beside those of azidentity and azsecrets, for equal inputs.

use std::fs;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use lanyard_keyvault::SecretSource;
use libtest_mimic::{Failed, Trial};
use serde_json::json;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::chain;
use crate::compare::{Accepted, differences, disagreements};
use crate::exchange::{Exchange, Known};
use crate::ground::{Ground, Holder, intercepted};
use crate::ours::{Ours, OursError, ask};
use crate::program::{Inputs, Program};
use crate::recorder::{Recorder, Upstream};

/// Everything that the trials of this suite need.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) ground: Arc<Ground>,
    pub(crate) program: Program,
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) accepted: Vec<Accepted>,
}

/// What both sides do.
const CASES: [(&str, Holder); 4] = [
    ("certificate", Holder::Certificate),
    ("federated", Holder::Federated),
    ("managed-identity", Holder::ManagedIdentity),
    ("secret", Holder::ManagedIdentity),
];

pub(crate) fn trials(stage: Stage) -> Vec<Trial> {
    let stage = Arc::new(stage);
    let mut trials: Vec<Trial> = CASES
        .into_iter()
        .map(|(case, holder)| {
            let stage = Arc::clone(&stage);
            let inputs = stage.ground.inputs(holder);
            let is_absent = inputs.is_none();
            let name = format!("requests::{case}_differs_only_as_accepted");
            let run = move || stage.compare(case, &inputs.unwrap_or_default());
            Trial::test(name, run).with_ignored_flag(is_absent)
        })
        .collect();
    trials.push(Trial::test("requests::every_accepted_difference_belongs_to_a_case", move || {
        stage.stray_entries()
    }));
    trials
}

impl Stage {
    fn compare(&self, case: &str, inputs: &Inputs) -> Result<(), Failed> {
        let token = fs::read_to_string(&inputs.token_file).unwrap_or_default();
        let host = inputs.vault.trim_start_matches("https://").trim_end_matches('/');
        let known = Known::new([
            (token, "<federated token>"),
            (inputs.tenant.clone(), "<tenant>"),
            (inputs.client.clone(), "<client>"),
            (host.to_owned(), "<vault>"),
            (inputs.secret_name.clone(), "<secret>"),
        ]);
        let theirs = self.record_theirs(case, inputs)?;
        let ours = self.record_ours(case, inputs)?;
        if theirs.is_empty() || ours.is_empty() {
            let counts = format!("theirs {}, ours {}", theirs.len(), ours.len());
            return Err(format!("one side made no request: {counts}").into());
        }
        let found = differences(&theirs, &ours, &known);
        let wrong = disagreements(case, &found, &self.accepted);
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n").into()) }
    }

    fn recorder(&self) -> Result<Recorder, Failed> {
        let upstream = self.ground.upstream().map_err(chain)?;
        self.runtime.block_on(Recorder::start(&upstream)).map_err(chain)
    }

    fn record_theirs(&self, case: &str, inputs: &Inputs) -> Result<Vec<Exchange>, Failed> {
        let recorder = self.recorder()?;
        let directory = TempDir::new().map_err(chain)?;
        let roots = directory.path().join("recorder.pem");
        fs::write(&roots, recorder.roots()).map_err(chain)?;
        let program = self.program.with(intercepted(&recorder.url(), &roots));
        program.answer(case, inputs).map_err(chain)?;
        Ok(recorder.take())
    }

    fn record_ours(&self, case: &str, inputs: &Inputs) -> Result<Vec<Exchange>, Failed> {
        let recorder = self.recorder()?;
        let way = Upstream {
            proxy: Some(recorder.url()),
            roots: Some(recorder.roots().as_bytes().to_vec()),
        };
        let ours = Ours::new(&way).map_err(chain)?;
        let directory = TempDir::new().map_err(chain)?;
        self.runtime.block_on(run_ours(&ours, case, inputs, &directory))?;
        Ok(recorder.take())
    }

    fn stray_entries(&self) -> Result<(), Failed> {
        let strays: Vec<&str> = self
            .accepted
            .iter()
            .flat_map(|entry| entry.cases.iter().map(String::as_str))
            .filter(|case| !CASES.iter().any(|(known, _)| known == case))
            .collect();
        if strays.is_empty() { Ok(()) } else { Err(format!("no such case: {strays:?}").into()) }
    }
}

async fn run_ours(
    ours: &Ours,
    case: &str,
    inputs: &Inputs,
    directory: &TempDir,
) -> Result<(), Failed> {
    let outcome = match case {
        "certificate" => {
            let document = directory.path().join("credential.json");
            fs::write(&document, document_of(inputs)?).map_err(chain)?;
            let credential = ours.certificate(&document).await.map_err(chain)?;
            ask(&*credential, &inputs.scope).await
        }
        "federated" => ask(&*ours.federated(inputs).map_err(chain)?, &inputs.scope).await,
        "managed-identity" => {
            ask(&*ours.managed_identity(&inputs.client).map_err(chain)?, &inputs.scope).await
        }
        _ => {
            let vault = ours.vault(&inputs.vault, &inputs.client).map_err(chain)?;
            let name = inputs.secret_name.parse().map_err(chain)?;
            vault.fetch_secret(&name, None).await.map(drop).map_err(OursError::Vault)
        }
    };
    outcome.map_err(chain)
}

/// The same certificate and key as in `inputs`, in the form of a mounted credential.
fn document_of(inputs: &Inputs) -> Result<String, Failed> {
    let bundle = fs::read(&inputs.certificate).map_err(chain)?;
    Ok(json!({
        "client_id": inputs.client,
        "tenant_id": inputs.tenant,
        "client_secret": STANDARD.encode(bundle),
        "authentication_endpoint": "https://login.microsoftonline.com/",
        "not_before": "2026-01-01T00:00:00Z",
    })
    .to_string())
}
