//! The suite `requests`: lanyard's requests compared with those of azidentity and azsecrets for equal inputs.

use std::fs;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use lanyard_keyvault::VaultSource;
use libtest_mimic::{Failed, Trial};
use serde_json::json;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::failed_with_causes;
use crate::azure_target::{AzureTarget, interception_environment};
use crate::client_program::{ClientInputs, ClientProgram};
use crate::lanyard_clients::{LanyardClientError, LanyardClients, request_token};
use crate::proxied_request::{InputNames, ProxiedRequest};
use crate::recording_proxy::{ForwardTarget, RecordingProxy};
use crate::request_differences::{AcceptedDifference, compare_requests, unexpected_differences};
use crate::sign_in_method::SignInMethod;

/// The fixture of the suite `requests`.
#[derive(Debug)]
pub(crate) struct RequestsSuiteFixture {
    pub(crate) azure_target: Arc<AzureTarget>,
    pub(crate) program: ClientProgram,
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) accepted: Vec<AcceptedDifference>,
}

/// The cases that both sides run.
const CASES: [(&str, SignInMethod); 4] = [
    ("certificate", SignInMethod::Certificate),
    ("federated", SignInMethod::Federated),
    ("managed-identity", SignInMethod::ManagedIdentity),
    ("secret", SignInMethod::ManagedIdentity),
];

pub(crate) fn trials(fixture: RequestsSuiteFixture) -> Vec<Trial> {
    let fixture = Arc::new(fixture);
    let mut trials: Vec<Trial> = CASES
        .into_iter()
        .map(|(case, holder)| {
            let fixture = Arc::clone(&fixture);
            let inputs = fixture.azure_target.inputs(holder);
            let is_absent = inputs.is_none();
            let name = format!("requests::{case}_differs_only_as_accepted");
            let run = move || fixture.compare_case(case, &inputs.unwrap_or_default());
            Trial::test(name, run).with_ignored_flag(is_absent)
        })
        .collect();
    trials.push(Trial::test("requests::every_accepted_difference_belongs_to_a_case", move || {
        fixture.expect_no_unused_entries()
    }));
    trials
}

impl RequestsSuiteFixture {
    fn compare_case(&self, case: &str, inputs: &ClientInputs) -> Result<(), Failed> {
        let token = fs::read_to_string(&inputs.token_file).unwrap_or_default();
        let host = inputs.vault.trim_start_matches("https://").trim_end_matches('/');
        let known = InputNames::new([
            (token, "<federated token>"),
            (inputs.tenant.clone(), "<tenant>"),
            (inputs.client.clone(), "<client>"),
            (host.to_owned(), "<vault>"),
            (inputs.secret_name.clone(), "<secret>"),
        ]);
        let theirs = self.record_upstream_requests(case, inputs)?;
        let ours = self.record_lanyard_requests(case, inputs)?;
        if theirs.is_empty() || ours.is_empty() {
            let counts = format!("theirs {}, ours {}", theirs.len(), ours.len());
            return Err(format!("one side made no request: {counts}").into());
        }
        let found = compare_requests(&theirs, &ours, &known);
        let wrong = unexpected_differences(case, &found, &self.accepted);
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n").into()) }
    }

    fn start_recording_proxy(&self) -> Result<RecordingProxy, Failed> {
        let upstream = self.azure_target.forward_target().map_err(failed_with_causes)?;
        self.runtime.block_on(RecordingProxy::start(&upstream)).map_err(failed_with_causes)
    }

    fn record_upstream_requests(
        &self,
        case: &str,
        inputs: &ClientInputs,
    ) -> Result<Vec<ProxiedRequest>, Failed> {
        let recorder = self.start_recording_proxy()?;
        let directory = TempDir::new().map_err(failed_with_causes)?;
        let roots = directory.path().join("recorder.pem");
        fs::write(&roots, recorder.authority_pem()).map_err(failed_with_causes)?;
        let program =
            self.program.with_environment(interception_environment(&recorder.url(), &roots));
        program.run_case(case, inputs).map_err(failed_with_causes)?;
        Ok(recorder.take_requests())
    }

    fn record_lanyard_requests(
        &self,
        case: &str,
        inputs: &ClientInputs,
    ) -> Result<Vec<ProxiedRequest>, Failed> {
        let recorder = self.start_recording_proxy()?;
        let target = ForwardTarget {
            proxy: Some(recorder.url()),
            roots: Some(recorder.authority_pem().as_bytes().to_vec()),
        };
        let ours = LanyardClients::new(&target).map_err(failed_with_causes)?;
        let directory = TempDir::new().map_err(failed_with_causes)?;
        self.runtime.block_on(run_lanyard_case(&ours, case, inputs, &directory))?;
        Ok(recorder.take_requests())
    }

    fn expect_no_unused_entries(&self) -> Result<(), Failed> {
        let strays: Vec<&str> = self
            .accepted
            .iter()
            .flat_map(|entry| entry.cases.iter().map(String::as_str))
            .filter(|case| !CASES.iter().any(|(known, _)| known == case))
            .collect();
        if strays.is_empty() { Ok(()) } else { Err(format!("no such case: {strays:?}").into()) }
    }
}

async fn run_lanyard_case(
    ours: &LanyardClients,
    case: &str,
    inputs: &ClientInputs,
    directory: &TempDir,
) -> Result<(), Failed> {
    let outcome = match case {
        "certificate" => {
            let document = directory.path().join("credential.json");
            fs::write(&document, credential_document(inputs)?).map_err(failed_with_causes)?;
            let credential =
                ours.certificate_credential(&document).await.map_err(failed_with_causes)?;
            request_token(&*credential, &inputs.scope).await
        }
        "federated" => {
            request_token(
                &*ours.federated_credential(inputs).map_err(failed_with_causes)?,
                &inputs.scope,
            )
            .await
        }
        "managed-identity" => {
            request_token(
                &*ours.managed_identity_credential(&inputs.client).map_err(failed_with_causes)?,
                &inputs.scope,
            )
            .await
        }
        _ => {
            let vault =
                ours.open_vault(&inputs.vault, &inputs.client).map_err(failed_with_causes)?;
            let name = inputs.secret_name.parse().map_err(failed_with_causes)?;
            vault.fetch_secret(&name, None).await.map(drop).map_err(LanyardClientError::Vault)
        }
    };
    outcome.map_err(failed_with_causes)
}

/// A mounted credential document with the certificate and key of `inputs`.
fn credential_document(inputs: &ClientInputs) -> Result<String, Failed> {
    let bundle = fs::read(&inputs.certificate).map_err(failed_with_causes)?;
    Ok(json!({
        "client_id": inputs.client,
        "tenant_id": inputs.tenant,
        "client_secret": STANDARD.encode(bundle),
        "authentication_endpoint": "https://login.microsoftonline.com/",
        "not_before": "2026-01-01T00:00:00Z",
    })
    .to_string())
}
