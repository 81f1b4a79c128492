//! The suite `go`: msi-dataplane with credential files that lanyard's mount wrote, and with the MSI data plane of
//! the local Azure.

mod managed_identities;
mod node_volumes;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use lanyard_api::ProviderParameters;
use lanyard_clock::SystemClock;
use lanyard_credential::bundle::CertificateBundle;
use lanyard_credential::document::CredentialDocument;
use lanyard_desired::proof::{ProofCalls, ProofTarget};
use lanyard_keyvault::MountedFile;
use lanyard_vocabulary::{Component, ObjectEncoding};
use libtest_mimic::{Failed, Trial};
use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::failed_with_causes;
use super::lifecycles::LifecycleClient;
use crate::azure_target::{AzureTarget, LocalAzureTarget};
use crate::client_program::{ClientEvent, ClientProgram, ClientProgramError, WatchedClient};
use crate::lanyard_clients::{LanyardClients, MountedCredential};
use crate::operation_clients::SuiteRequestLog;

/// The number of rotations while the watched client runs.
const ROTATION_COUNT: usize = 100;

/// How soon after a rotation the client must have a token with the new key.
const NOTICE_TIMEOUT: Duration = Duration::from_secs(1);

/// The size of the credential in bytes at the last rotation. A vault secret holds at most 25 KiB.
const MAX_CREDENTIAL_SIZE: usize = 25_000;

/// How long a client may take to start, sign in and make its calls.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// The volume and the proof calls of one component, derived from a HostedCluster.
#[derive(Debug, Clone)]
pub(crate) struct ComponentCredential {
    pub(crate) parameters: ProviderParameters,
    pub(crate) proof_calls: Option<ProofCalls>,
}

/// The fixture of the suite `go`.
#[derive(Debug)]
pub(crate) struct GoSuiteFixture {
    pub(crate) azure_target: Arc<AzureTarget>,
    pub(crate) program: ClientProgram,
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) credentials: BTreeMap<Component, ComponentCredential>,
    /// Receives the requests of trials with their own local Azure; `None` for a real subscription.
    pub(crate) request_log: Option<Arc<SuiteRequestLog>>,
}

/// The modules azsecrets, azcertificates, azkeys and arm*.
pub(crate) const fn lifecycle_client(program: ClientProgram) -> LifecycleClient {
    const LIFECYCLES: &[&str] = &[
        "network",
        "clusters",
        "secrets",
        "certificates",
        "keys",
        "identities",
        "roles",
        "private-dns",
        "dns",
        "resources",
    ];
    LifecycleClient { name: "go", program, lifecycles: LIFECYCLES }
}

pub(crate) fn trials(fixture: GoSuiteFixture) -> Vec<Trial> {
    let fixture = Arc::new(fixture);
    match &*fixture.azure_target {
        AzureTarget::Live(live) => {
            let file = live.credential_file();
            let is_absent = file.is_none();
            let (fixture, call) = (Arc::clone(&fixture), live.granted_call());
            let name = "go::a_credential_file_gets_a_token_and_an_arm_answer";
            let run = move || {
                run_witness(&fixture.program, &file.unwrap_or_default(), &[("granted", call)])
            };
            vec![Trial::test(name, run).with_ignored_flag(is_absent)]
        }
        AzureTarget::Local(_) => local_trials(&fixture),
    }
}

fn local_trials(fixture: &Arc<GoSuiteFixture>) -> Vec<Trial> {
    let mut trials: Vec<Trial> = fixture
        .credentials
        .keys()
        .map(|component| {
            let (fixture, component) = (Arc::clone(fixture), *component);
            let name = format!("go::mounted_credential_of_{}_signs_in", component.name());
            Trial::test(name, move || {
                fixture.local().and_then(|local| fixture.check_component(local, component))
            })
        })
        .collect();
    trials.extend(node_volumes::trials(fixture));
    trials.extend(managed_identities::trials(fixture));
    let fixture = Arc::clone(fixture);
    trials.push(Trial::test("go::running_client_reloads_a_hundred_rotations", move || {
        fixture.local().and_then(|local| fixture.follow_rotations(local))
    }));
    trials
}

impl GoSuiteFixture {
    fn local(&self) -> Result<&LocalAzureTarget, Failed> {
        self.azure_target.local()
    }

    fn component_credential(&self, component: Component) -> Result<&ComponentCredential, Failed> {
        self.credentials
            .get(&component)
            .ok_or_else(|| format!("the cluster does not run {}", component.name()).into())
    }

    /// Opens an empty volume for the credential of a component.
    fn open_credential_volume(
        &self,
        local: &LocalAzureTarget,
        component: Component,
        directory: &TempDir,
    ) -> Result<MountedCredential, Failed> {
        let subject = self.component_credential(component)?;
        let ours =
            LanyardClients::new(&self.azure_target.forward_target().map_err(failed_with_causes)?)
                .map_err(failed_with_causes)?;
        let vault = format!("https://{}", local.vault_host());
        let vault = ours.open_vault(&vault, local.vault_reader()).map_err(failed_with_causes)?;
        MountedCredential::open(subject.parameters.clone(), vault, directory.path())
            .map_err(failed_with_causes)
    }

    /// Checks one component's credential from the vault through mount and library to ARM.
    fn check_component(
        &self,
        local: &LocalAzureTarget,
        component: Component,
    ) -> Result<(), Failed> {
        let directory = TempDir::new().map_err(failed_with_causes)?;
        let mut mounted = self.open_credential_volume(local, component, &directory)?;
        let files = self.runtime.block_on(mounted.fetch_files()).map_err(failed_with_causes)?;
        mounted.publish(&files).map_err(failed_with_causes)?;
        let content = CredentialSummary::parse(&files)?;
        let calls = self
            .component_credential(component)?
            .proof_calls
            .as_ref()
            .map(arm_calls)
            .unwrap_or_default();
        let file = mounted.credential_file().display().to_string();
        let outcome = run_witness(&self.program, &file, &calls);
        if !content.uses_new_pkcs12_profile {
            return outcome;
        }
        // azidentity parses PKCS#12 with x/crypto, which supports only the old profile. The case fails when
        // that changes.
        match outcome {
            Err(error) if error.message().is_some_and(|it| it.contains("pkcs12")) => Ok(()),
            Err(error) => Err(error),
            Ok(()) => {
                Err("the library supports PKCS#12 with AES now: remove this exception".into())
            }
        }
    }

    /// Runs one client that opens the first generation of a file, and rotates the certificate a hundred
    /// times.
    fn follow_rotations(&self, local: &LocalAzureTarget) -> Result<(), Failed> {
        let clock = SystemClock::shared();
        let component = self.largest_plain_component(local)?;
        let directory = TempDir::new().map_err(failed_with_causes)?;
        let mut mounted = self.open_credential_volume(local, component, &directory)?;
        let files = self.runtime.block_on(mounted.fetch_files()).map_err(failed_with_causes)?;
        mounted.publish(&files).map_err(failed_with_causes)?;
        let first = CredentialSummary::parse(&files)?;
        let file = mounted.credential_file().display().to_string();
        let mut client = self
            .program
            .start_watching(&[("file", &file), ("watch", "true")])
            .map_err(failed_with_causes)?;
        wait_for_certificate(&mut client, &first.thumbprint, START_TIMEOUT)?;

        let mut slowest = Duration::ZERO;
        for number in 1..=ROTATION_COUNT {
            let padding =
                (MAX_CREDENTIAL_SIZE.saturating_sub(first.bytes)) * number / ROTATION_COUNT;
            self.runtime
                .block_on(local.control_api().rotate_credential(component.name(), padding))
                .map_err(failed_with_causes)?;
            let files = self.runtime.block_on(mounted.fetch_files()).map_err(failed_with_causes)?;
            let content = CredentialSummary::parse(&files)?;
            let began = clock.monotonic();
            mounted.publish(&files).map_err(failed_with_causes)?;
            wait_for_certificate(&mut client, &content.thumbprint, NOTICE_TIMEOUT).map_err(
                |why| {
                    let why = why.message().unwrap_or_default().to_owned();
                    format!("rotation {number} ({} bytes): {why}", content.bytes)
                },
            )?;
            slowest = slowest.max(clock.monotonic().saturating_sub(began));
        }
        let summary =
            format!("the slowest of {ROTATION_COUNT} rotations was noticed after {slowest:?}");
        if slowest > NOTICE_TIMEOUT {
            return Err(summary.into());
        }
        // Prints the figure for comparison between runs.
        writeln!(std::io::stderr().lock(), "{summary}").unwrap_or_default();
        Ok(())
    }

    /// The component whose credential can grow to the limit of a vault secret: its file is plain text in a
    /// format that the library supports.
    fn largest_plain_component(&self, local: &LocalAzureTarget) -> Result<Component, Failed> {
        for (component, subject) in &self.credentials {
            let is_plain = subject
                .parameters
                .objects
                .first()
                .is_some_and(|it| it.encoding == Some(ObjectEncoding::Utf8));
            if is_plain {
                let directory = TempDir::new().map_err(failed_with_causes)?;
                let mounted = self.open_credential_volume(local, *component, &directory)?;
                let files =
                    self.runtime.block_on(mounted.fetch_files()).map_err(failed_with_causes)?;
                if !CredentialSummary::parse(&files)?.uses_new_pkcs12_profile {
                    return Ok(*component);
                }
            }
        }
        Err("no component has a credential in plain text that the library can read".into())
    }
}

/// Non-secret properties of a mounted credential.
#[derive(Debug)]
struct CredentialSummary {
    /// SHA-256 of the leaf certificate in lower-case hex.
    thumbprint: String,
    bytes: usize,
    uses_new_pkcs12_profile: bool,
}

impl CredentialSummary {
    fn parse(files: &[MountedFile]) -> Result<Self, Failed> {
        let file = files.first().ok_or("the volume would be empty")?;
        Self::of(file.content.expose())
    }

    /// Summarizes a mounted file.
    fn load(file: &Path) -> Result<Self, Failed> {
        Self::of(&std::fs::read(file).map_err(failed_with_causes)?)
    }

    fn of(bytes: &[u8]) -> Result<Self, Failed> {
        let document = CredentialDocument::parse(bytes).map_err(failed_with_causes)?;
        let bundle =
            CertificateBundle::parse(document.client_secret()).map_err(failed_with_causes)?;
        let wire: Value = serde_json::from_slice(bytes).map_err(failed_with_causes)?;
        let secret = wire.get("client_secret").and_then(Value::as_str).unwrap_or_default();
        let secret = STANDARD.decode(secret).map_err(failed_with_causes)?;
        Ok(Self {
            thumbprint: bundle.leaf().sha256().to_string().to_lowercase(),
            bytes: bytes.len(),
            uses_new_pkcs12_profile: uses_pbes2(&secret),
        })
    }
}

/// Whether a file uses PBES2 (RFC 8018, section 6.2), which distinguishes the new PKCS#12 profile from the
/// old one.
fn uses_pbes2(pfx: &[u8]) -> bool {
    const OBJECT_ID: [u8; 9] = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x05, 0x0d];
    pfx.windows(OBJECT_ID.len()).any(|window| window == OBJECT_ID)
}

/// The ARM calls among a component's proof calls, by expected result.
fn arm_calls(proofs: &ProofCalls) -> Vec<(&'static str, String)> {
    [("granted", &proofs.granted), ("refused", &proofs.refused)]
        .into_iter()
        .filter_map(|(name, call)| match &call.target {
            ProofTarget::Arm { path } => {
                Some((name, format!("{path}?api-version={}", call.api_version)))
            }
            ProofTarget::Vault { .. } => None,
        })
        .collect()
}

/// Runs the client once and checks all its events.
fn run_witness(
    program: &ClientProgram,
    file: &str,
    calls: &[(&str, String)],
) -> Result<(), Failed> {
    let mut flags = vec![("file", file)];
    flags.extend(calls.iter().map(|(name, target)| (*name, target.as_str())));
    let mut client = program.start_watching(&flags).map_err(failed_with_causes)?;
    let (mut signed_in, mut answered) = (false, 0);
    loop {
        match client.next_event(START_TIMEOUT) {
            Ok(ClientEvent::Attached) => {}
            Ok(ClientEvent::Certificate { .. }) => signed_in = true,
            Ok(ClientEvent::Arm { call, status, code }) => {
                check_arm_answer(&call, status, &code)?;
                answered += 1;
            }
            Ok(ClientEvent::Refused { message } | ClientEvent::Log { message }) => {
                return Err(message.into());
            }
            Err(ClientProgramError::Exited { message }) if message.is_empty() => break,
            Err(error) => return Err(failed_with_causes(error)),
        }
    }
    if signed_in && answered == calls.len() {
        return Ok(());
    }
    Err(format!("signed in: {signed_in}, answers: {answered} of {}", calls.len()).into())
}

/// Checks a response of ARM. ARM authorizes a request before it looks up the resource, so 404 proves the
/// permission as well as 200.
fn check_arm_answer(call: &str, status: u16, code: &str) -> Result<(), Failed> {
    match (call, status, code) {
        ("granted", 200 | 404, _) | ("refused", 403, "AuthorizationFailed") => Ok(()),
        _ => Err(format!("the call that must be {call} returned {status} {code}").into()),
    }
}

fn wait_for_certificate(
    client: &mut WatchedClient,
    thumbprint: &str,
    timeout: Duration,
) -> Result<(), Failed> {
    loop {
        match client.next_event(timeout).map_err(failed_with_causes)? {
            ClientEvent::Certificate { thumbprint: observed } if observed == thumbprint => {
                return Ok(());
            }
            ClientEvent::Refused { message } | ClientEvent::Log { message } => {
                return Err(message.into());
            }
            ClientEvent::Attached | ClientEvent::Arm { .. } | ClientEvent::Certificate { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arm_answers_are_checked_by_status_and_code() {
        let cases = [
            ("granted", 200, "", true),
            ("granted", 404, "ResourceNotFound", true),
            ("granted", 403, "AuthorizationFailed", false),
            ("granted", 401, "InvalidAuthenticationToken", false),
            ("refused", 403, "AuthorizationFailed", true),
            ("refused", 403, "Forbidden", false),
            ("refused", 404, "ResourceNotFound", false),
            ("refused", 200, "", false),
        ];
        for (call, status, code, good) in cases {
            assert_eq!(
                check_arm_answer(call, status, code).is_ok(),
                good,
                "{call} {status} {code}"
            );
        }
    }

    #[test]
    fn new_pkcs12_profile_is_detected_by_object_id() {
        let new = [&[0x30, 0x82][..], &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x05, 0x0d]];
        assert!(uses_pbes2(&new.concat()));
        assert!(!uses_pbes2(&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x0c, 0x01, 0x03]));
        assert!(!uses_pbes2(&[]));
    }
}
