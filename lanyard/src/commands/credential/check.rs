//! `lanyard credential check`: inspects a credential file and tests the credential.

mod credential_files;
mod text;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use azure_core::credentials::TokenCredential;
use lanyard_azure::{ArmClient, AuthenticatedClient, AzureTransport};
use lanyard_clock::{ErrorHint as _, SharedClock, SystemClock};
use lanyard_credential::inspect::{Inspection, inspect};
use lanyard_credential::{
    ReloadingCertificateCredential, ReloadingCertificateOptions, TokenError, TokenTransport,
    TokenTransportOptions,
};
use lanyard_vocabulary::{Cloud, format_error_chain};
use serde::Serialize;
use url::Url;

use self::credential_files::{CredentialFile, CredentialFiles, read_error};
use crate::commands::azure_transport;
use crate::exit::{CommandError, CommandExit, CommandResult};
use crate::output::{self, OutputArgs};
use crate::settings::ProcessEnvironment;

const EXAMPLE: &str = "\
Examples:
  lanyard credential check /mnt/certs
  lanyard credential check --offline /mnt/certs/harbour-disk
  kubectl exec deployment/disk -- cat /mnt/certs/harbour-disk | lanyard credential check -";

/// Inspect a credential file and test the credential
///
/// Inspects the file (never showing the secret): its keys, whether the private key belongs to the
/// certificate, when it expires and when it should be renewed. Then requests a token from Entra, and with
/// --call makes one GET request with it. Every failure has a hint with the next step. The JSON document of a
/// directory is a list.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLE)]
pub(crate) struct Args {
    /// The mounted credential file, or a directory of them; `-` reads standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// A URL of Azure Resource Manager or of a vault to call with the credential, such as
    /// <https://management.azure.com/subscriptions/ID/resourceGroups?api-version=2021-04-01>
    #[arg(long, value_name = "URL")]
    call: Option<Url>,
    /// Inspect the file only, without network requests
    #[arg(long, conflicts_with = "call")]
    offline: bool,
    #[command(flatten)]
    output: OutputArgs,
}

/// The result of the check.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CredentialCheck {
    file: PathBuf,
    /// `None` if the file cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    inspection: Option<Inspection>,
    /// Why the file cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    read_error: Option<String>,
    token: CredentialCheckStep,
    call: CredentialCheckStep,
    ok: bool,
}

/// The result of a request.
#[derive(Debug, Serialize)]
#[serde(tag = "outcome", rename_all = "kebab-case", rename_all_fields = "camelCase")]
enum CredentialCheckStep {
    /// The request succeeded.
    Good { detail: String },
    /// The request was refused or got no response.
    Failed { detail: String, next_step: String },
    /// The request was not made: it was not requested, or an earlier step failed.
    NotTried { reason: &'static str },
}

impl CredentialCheck {
    /// The failed check of a file that cannot be read.
    fn unreadable(file: &CredentialFile, error: &std::io::Error) -> Self {
        let not_tried = || CredentialCheckStep::NotTried { reason: "the file cannot be read" };
        Self {
            file: file.name().to_owned(),
            inspection: None,
            read_error: Some(error.to_string()),
            token: not_tried(),
            call: not_tried(),
            ok: false,
        }
    }
}

pub(crate) async fn run(args: Args, environment: ProcessEnvironment) -> CommandResult {
    let files = CredentialFiles::find(&args.file)?;
    let mut checks = Vec::new();
    for file in &files.files {
        checks.push(match file.read() {
            Ok(content) => check_file(file, content, &args, &environment).await?,
            // The other files of the directory are checked all the same.
            Err(error) if files.is_directory => CredentialCheck::unreadable(file, &error),
            Err(error) => return Err(read_error(file.name(), &error)),
        });
    }
    let format = args.output.format;
    match checks.as_slice() {
        [check] if !files.is_directory => {
            output::print_value(check, format, |_| text::render(check))?;
        }
        checks => output::print_value(&checks, format, |_| {
            checks.iter().map(text::render).collect::<Vec<_>>().join("\n\n")
        })?,
    }
    let is_good = checks.iter().all(|check| check.ok);
    Ok(if is_good { CommandExit::Success } else { CommandExit::Failed })
}

async fn check_file(
    file: &CredentialFile,
    content: Vec<u8>,
    args: &Args,
    environment: &ProcessEnvironment,
) -> Result<CredentialCheck, CommandError> {
    let clock = SystemClock::shared();
    let scope = match &args.call {
        None => None,
        Some(url) => Some(AuthenticatedClient::scope_of(url).ok_or_else(|| {
            CommandError::invalid_input(format!("--call: {} is not an Azure host", url_host(url)))
                .with_hint("give a URL of Azure Resource Manager or of a vault")
        })?),
    };
    let inspection = inspect(&content, clock.now());
    drop(content);
    let (token, call) = if args.offline {
        (
            CredentialCheckStep::NotTried { reason: "--offline" },
            CredentialCheckStep::NotTried { reason: "--offline" },
        )
    } else if inspection.is_usable() {
        let target = args.call.as_ref().zip(scope.as_deref());
        request_token_and_call(file.path(), target, &inspection, environment, clock).await?
    } else {
        let reason = "the file cannot be used";
        (CredentialCheckStep::NotTried { reason }, CredentialCheckStep::NotTried { reason })
    };
    let failed = |step: &CredentialCheckStep| matches!(step, CredentialCheckStep::Failed { .. });
    let ok = inspection.is_usable() && !failed(&token) && !failed(&call);
    let (file, inspection) = (file.name().to_owned(), Some(inspection));
    Ok(CredentialCheck { file, inspection, read_error: None, token, call, ok })
}

fn url_host(url: &Url) -> &str {
    url.host_str().unwrap_or_default()
}

/// Requests a token from Entra, and then calls the given URL.
async fn request_token_and_call(
    file: &Path,
    target: Option<(&Url, &str)>,
    inspection: &Inspection,
    environment: &ProcessEnvironment,
    clock: SharedClock,
) -> Result<(CredentialCheckStep, CredentialCheckStep), CommandError> {
    let transport = build_transport(environment, Arc::clone(&clock))?;
    let mut token_options = TokenTransportOptions::default();
    token_options.clock = Arc::clone(&clock);
    token_options.client.transport = Some(transport.without_rate_limit());
    let mut options = ReloadingCertificateOptions::default();
    options.transport = TokenTransport::new(token_options);
    let credential = match ReloadingCertificateCredential::open(file, options).await {
        Ok(credential) => credential,
        Err(error) => {
            let next_step = error.hint().unwrap_or_default().into_owned();
            let failed =
                CredentialCheckStep::Failed { detail: format_error_chain(&error), next_step };
            return Ok((failed, CredentialCheckStep::NotTried { reason: "there is no token" }));
        }
    };
    let scope = target.map_or_else(|| arm_scope(inspection), |(_, scope)| scope.to_owned());
    let token = token_step(&credential, &scope, &clock).await;
    let call = match (&token, target) {
        (CredentialCheckStep::Good { .. }, Some((url, _))) => {
            call_step(&AuthenticatedClient::new(scope, credential, &transport), url).await
        }
        (CredentialCheckStep::Good { .. }, None) => {
            CredentialCheckStep::NotTried { reason: "no --call" }
        }
        _ => CredentialCheckStep::NotTried { reason: "there is no token" },
    };
    Ok((token, call))
}

async fn token_step(
    credential: &ReloadingCertificateCredential,
    scope: &str,
    clock: &SharedClock,
) -> CredentialCheckStep {
    match credential.get_token(&[scope], None).await {
        Ok(token) => {
            let seconds = token.expires_on.unix_timestamp() - clock.now().as_second();
            let minutes = seconds / 60;
            CredentialCheckStep::Good {
                detail: format!("for {scope}, valid for {minutes} more minutes"),
            }
        }
        Err(error) => {
            let hint = TokenError::of(&error).and_then(TokenError::hint);
            let next_step =
                hint.unwrap_or("see --log lanyard_credential=debug".into()).into_owned();
            CredentialCheckStep::Failed { detail: format_error_chain(&error), next_step }
        }
    }
}

async fn call_step(caller: &AuthenticatedClient, url: &Url) -> CredentialCheckStep {
    match caller.fetch(url).await {
        Ok(reply) => CredentialCheckStep::Good {
            detail: format!("GET {}{}: {}", url_host(url), url.path(), reply.status),
        },
        Err(error) => CredentialCheckStep::Failed {
            detail: format_error_chain(&error),
            next_step: error.hint().unwrap_or_default().into_owned(),
        },
    }
}

/// The scope of Azure Resource Manager in the cloud of the file's authority.
fn arm_scope(inspection: &Inspection) -> String {
    let authority = inspection
        .document
        .as_ref()
        .and_then(|document| document.authentication_endpoint.as_ref())
        .and_then(|authority| authority.as_url().host_str());
    let all = || Cloud::ALL.into_iter().filter_map(Cloud::endpoints);
    let endpoints = all()
        .find(|endpoints| {
            let aliases = endpoints.authority_aliases.iter().copied();
            std::iter::once(endpoints.authority_host)
                .chain(aliases)
                .any(|host| Some(host) == authority)
        })
        .or_else(|| Cloud::Public.endpoints());
    endpoints.map(ArmClient::scope).unwrap_or_default()
}

fn build_transport(
    environment: &ProcessEnvironment,
    clock: SharedClock,
) -> Result<AzureTransport, CommandError> {
    azure_transport::build_transport(&azure_transport::transport_settings(environment)?, &clock)
}
