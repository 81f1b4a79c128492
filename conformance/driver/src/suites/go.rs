//! msi-dataplane on files that our mount wrote.

mod attached;

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

use super::chain;
use crate::ground::{Ground, Local};
use crate::ours::{MountedCredential, Ours};
use crate::program::{Event, Program, ProgramError, Watched};

/// How often the certificate is rotated under the witness.
const ROTATIONS: usize = 100;

/// How soon the witness must have a token with the new key.
const NOTICE: Duration = Duration::from_secs(1);

/// The size of the credential at the last rotation; a vault secret holds 25 KiB.
const LAST_SIZE: usize = 25_000;

/// How long a program may take to start, to sign in and to call.
const START: Duration = Duration::from_secs(20);

/// What a HostedCluster says of one component.
#[derive(Debug, Clone)]
pub(crate) struct Subject {
    pub(crate) parameters: ProviderParameters,
    pub(crate) proofs: Option<ProofCalls>,
}

/// Everything that the trials of this suite need.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) ground: Arc<Ground>,
    pub(crate) program: Program,
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) subjects: BTreeMap<Component, Subject>,
}

pub(crate) fn trials(stage: Stage) -> Vec<Trial> {
    let stage = Arc::new(stage);
    match &*stage.ground {
        Ground::Live(live) => {
            let file = live.credential_file();
            let is_absent = file.is_none();
            let (stage, call) = (Arc::clone(&stage), live.granted_call());
            let name = "go::a_credential_file_gets_a_token_and_an_arm_answer";
            let run =
                move || sign_in(&stage.program, &file.unwrap_or_default(), &[("granted", call)]);
            vec![Trial::test(name, run).with_ignored_flag(is_absent)]
        }
        Ground::Local(_) => local_trials(&stage),
    }
}

fn local_trials(stage: &Arc<Stage>) -> Vec<Trial> {
    let mut trials: Vec<Trial> = stage
        .subjects
        .keys()
        .map(|component| {
            let (stage, component) = (Arc::clone(stage), *component);
            let name = format!("go::the_mounted_file_of_{}_is_judged", component.name());
            Trial::test(name, move || stage.local().and_then(|local| stage.one(local, component)))
        })
        .collect();
    trials.extend(attached::trials(stage));
    let stage = Arc::clone(stage);
    trials.push(Trial::test(
        "go::a_process_attached_to_the_first_generation_notices_a_hundred_rotations",
        move || stage.local().and_then(|local| stage.rotations(local)),
    ));
    trials
}

impl Stage {
    fn local(&self) -> Result<&Local, Failed> {
        match &*self.ground {
            Ground::Local(local) => Ok(local),
            Ground::Live(_) => Err("this case needs a local Azure".into()),
        }
    }

    fn subject(&self, component: Component) -> Result<&Subject, Failed> {
        self.subjects
            .get(&component)
            .ok_or_else(|| format!("the cluster does not run {}", component.name()).into())
    }

    /// An empty volume for the credential of a component, and the way to fill it.
    fn mount(
        &self,
        local: &Local,
        component: Component,
        directory: &TempDir,
    ) -> Result<MountedCredential, Failed> {
        let subject = self.subject(component)?;
        let ours = Ours::new(&self.ground.upstream().map_err(chain)?).map_err(chain)?;
        let vault = format!("https://{}", local.vault_host());
        let vault = ours.vault(&vault, local.vault_reader()).map_err(chain)?;
        MountedCredential::open(subject.parameters.clone(), vault, directory.path()).map_err(chain)
    }

    /// One component's credential on its way through vault, mount, library and ARM.
    fn one(&self, local: &Local, component: Component) -> Result<(), Failed> {
        let directory = TempDir::new().map_err(chain)?;
        let mut mounted = self.mount(local, component, &directory)?;
        let files = self.runtime.block_on(mounted.fetch()).map_err(chain)?;
        mounted.publish(&files).map_err(chain)?;
        let content = Content::parse(&files)?;
        let calls = self.subject(component)?.proofs.as_ref().map(arm_calls).unwrap_or_default();
        let file = mounted.file().display().to_string();
        let outcome = sign_in(&self.program, &file, &calls);
        if !content.is_new_pkcs12 {
            return outcome;
        }
        // azidentity reads PKCS#12 by x/crypto, which knows the old profile only. If that ever
        // changes, this case has to say so.
        match outcome {
            Err(error) if error.message().is_some_and(|it| it.contains("pkcs12")) => Ok(()),
            Err(error) => Err(error),
            Ok(()) => {
                Err("the library reads PKCS#12 with AES now: judge it like the others".into())
            }
        }
    }

    /// One process on the first generation of a file, and a hundred rotations under it.
    fn rotations(&self, local: &Local) -> Result<(), Failed> {
        let clock = SystemClock::shared();
        let component = self.rotated_component(local)?;
        let directory = TempDir::new().map_err(chain)?;
        let mut mounted = self.mount(local, component, &directory)?;
        let files = self.runtime.block_on(mounted.fetch()).map_err(chain)?;
        mounted.publish(&files).map_err(chain)?;
        let first = Content::parse(&files)?;
        let file = mounted.file().display().to_string();
        let mut witness =
            self.program.watch(&[("file", &file), ("watch", "true")]).map_err(chain)?;
        await_certificate(&mut witness, &first.thumbprint, START)?;

        let mut slowest = Duration::ZERO;
        for number in 1..=ROTATIONS {
            let padding = (LAST_SIZE.saturating_sub(first.bytes)) * number / ROTATIONS;
            self.runtime
                .block_on(local.control().rotate(component.name(), padding))
                .map_err(chain)?;
            let files = self.runtime.block_on(mounted.fetch()).map_err(chain)?;
            let content = Content::parse(&files)?;
            let began = clock.monotonic();
            mounted.publish(&files).map_err(chain)?;
            await_certificate(&mut witness, &content.thumbprint, NOTICE).map_err(|why| {
                let why = why.message().unwrap_or_default().to_owned();
                format!("rotation {number} ({} bytes): {why}", content.bytes)
            })?;
            slowest = slowest.max(clock.monotonic().saturating_sub(began));
        }
        let told = format!("the slowest of {ROTATIONS} rotations was noticed after {slowest:?}");
        if slowest > NOTICE {
            return Err(told.into());
        }
        // For whoever follows the figure from run to run.
        writeln!(std::io::stderr().lock(), "{told}").unwrap_or_default();
        Ok(())
    }

    /// The component whose credential can grow to the limit of a vault secret: one in plain text,
    /// in a form that the library reads.
    fn rotated_component(&self, local: &Local) -> Result<Component, Failed> {
        for (component, subject) in &self.subjects {
            let is_plain = subject
                .parameters
                .objects
                .first()
                .is_some_and(|it| it.encoding == Some(ObjectEncoding::Utf8));
            if is_plain {
                let directory = TempDir::new().map_err(chain)?;
                let mounted = self.mount(local, *component, &directory)?;
                let files = self.runtime.block_on(mounted.fetch()).map_err(chain)?;
                if !Content::parse(&files)?.is_new_pkcs12 {
                    return Ok(*component);
                }
            }
        }
        Err("no component has a credential in plain text that the library can read".into())
    }
}

/// What a mounted credential is, without what is secret in it.
#[derive(Debug)]
struct Content {
    /// SHA-256 of the leaf, lower-case hex.
    thumbprint: String,
    bytes: usize,
    is_new_pkcs12: bool,
}

impl Content {
    fn parse(files: &[MountedFile]) -> Result<Self, Failed> {
        let file = files.first().ok_or("the volume would be empty")?;
        Self::of(file.content.expose())
    }

    /// Reads a mounted file.
    fn load(file: &Path) -> Result<Self, Failed> {
        Self::of(&std::fs::read(file).map_err(chain)?)
    }

    fn of(bytes: &[u8]) -> Result<Self, Failed> {
        let document = CredentialDocument::parse(bytes).map_err(chain)?;
        let bundle = CertificateBundle::parse(document.client_secret()).map_err(chain)?;
        let wire: Value = serde_json::from_slice(bytes).map_err(chain)?;
        let secret = wire.get("client_secret").and_then(Value::as_str).unwrap_or_default();
        let secret = STANDARD.decode(secret).map_err(chain)?;
        Ok(Self {
            thumbprint: bundle.leaf().sha256().to_string().to_lowercase(),
            bytes: bytes.len(),
            is_new_pkcs12: uses_pbes2(&secret),
        })
    }
}

/// PBES2 (RFC 8018, 6.2) is what tells the new PKCS#12 profile from the old one.
fn uses_pbes2(pfx: &[u8]) -> bool {
    const OBJECT_ID: [u8; 9] = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x05, 0x0d];
    pfx.windows(OBJECT_ID.len()).any(|window| window == OBJECT_ID)
}

/// The calls of a component that go to ARM, by what must come of them.
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

/// Runs the witness once and judges every answer.
fn sign_in(program: &Program, file: &str, calls: &[(&str, String)]) -> Result<(), Failed> {
    let mut flags = vec![("file", file)];
    flags.extend(calls.iter().map(|(name, target)| (*name, target.as_str())));
    let mut witness = program.watch(&flags).map_err(chain)?;
    let (mut signed_in, mut answered) = (false, 0);
    loop {
        match witness.next(START) {
            Ok(Event::Attached) => {}
            Ok(Event::Certificate { .. }) => signed_in = true,
            Ok(Event::Arm { call, status, code }) => {
                judge_answer(&call, status, &code)?;
                answered += 1;
            }
            Ok(Event::Refused { message } | Event::Log { message }) => return Err(message.into()),
            Err(ProgramError::Ended { message }) if message.is_empty() => break,
            Err(error) => return Err(chain(error)),
        }
    }
    if signed_in && answered == calls.len() {
        return Ok(());
    }
    Err(format!("signed in: {signed_in}, answers: {answered} of {}", calls.len()).into())
}

/// ARM authorizes before it looks: 404 proves the right as well as 200.
fn judge_answer(call: &str, status: u16, code: &str) -> Result<(), Failed> {
    match (call, status, code) {
        ("granted", 200 | 404, _) | ("refused", 403, "AuthorizationFailed") => Ok(()),
        _ => Err(format!("the call that must be {call} was answered {status} {code}").into()),
    }
}

fn await_certificate(
    witness: &mut Watched,
    thumbprint: &str,
    patience: Duration,
) -> Result<(), Failed> {
    loop {
        match witness.next(patience).map_err(chain)? {
            Event::Certificate { thumbprint: seen } if seen == thumbprint => return Ok(()),
            Event::Refused { message } | Event::Log { message } => return Err(message.into()),
            Event::Attached | Event::Arm { .. } | Event::Certificate { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arm_answers_are_judged_by_status_and_code() {
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
            assert_eq!(judge_answer(call, status, code).is_ok(), good, "{call} {status} {code}");
        }
    }

    #[test]
    fn the_new_pkcs12_profile_is_told_by_its_object_id() {
        let new = [&[0x30, 0x82][..], &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x05, 0x0d]];
        assert!(uses_pbes2(&new.concat()));
        assert!(!uses_pbes2(&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x0c, 0x01, 0x03]));
        assert!(!uses_pbes2(&[]));
    }
}
