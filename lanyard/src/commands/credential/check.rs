//! `lanyard credential check`: inspects a credential file and tests the credential.

mod credential_files;
mod federated_token;

use std::path::PathBuf;
use std::sync::Arc;

use azure_core::credentials::TokenCredential;
use lanyard_azure::{ArmClient, AuthenticatedClient, AzureTransport};
use lanyard_clock::{ErrorHint as _, SharedClock, SystemClock};
use lanyard_credential::identity::Authority;
use lanyard_credential::inspect::{Inspection, inspect};
use lanyard_credential::{
    ReloadingCertificateCredential, ReloadingCertificateOptions, TokenError, TokenTransport,
    TokenTransportOptions,
};
use lanyard_diagnosis::CheckOutcome;
use lanyard_vocabulary::cloud::{CloudEndpoints, PUBLIC};
use serde::Serialize;
use url::Url;

use self::credential_files::{CredentialFile, CredentialFiles, READ_HINT, read_error};
use self::federated_token::FederatedTokenArgs;
use crate::commands::azure_transport;
use crate::exit::{CommandError, CommandExit, CommandResult};
use crate::output::{self, OutputArgs};
use crate::settings::ProcessEnvironment;

const EXAMPLE: &str = "\
Examples:
  lanyard credential check /mnt/certs
  lanyard credential check --offline /mnt/certs/harbour-disk
  kubectl exec deployment/disk -- cat /mnt/certs/harbour-disk | lanyard credential check -
  lanyard credential check --federated-token \"$AZURE_FEDERATED_TOKEN_FILE\" --offline";

/// Inspect a credential file or a federated token, and test it
///
/// Inspects the file (never showing the secret): its keys, whether the private key belongs to the
/// certificate, when it expires and when it should be renewed. Then requests a token from Entra, and with
/// --call makes one GET request with it. Every failure has a hint with the next step. The JSON document of a
/// directory is a list. With --federated-token, finds the first broken hop of a workload identity.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLE)]
pub(crate) struct Args {
    /// The mounted credential file, or a directory of them; `-` reads standard input
    #[arg(value_name = "FILE", required_unless_present = "federated_token")]
    file: Option<PathBuf>,
    /// A URL of Azure Resource Manager or of a vault to call with the credential, such as
    /// <https://management.azure.com/subscriptions/ID/resourceGroups?api-version=2021-04-01>
    #[arg(long, value_name = "URL")]
    call: Option<Url>,
    /// Inspect the file only, without network requests
    #[arg(long, conflicts_with = "call")]
    offline: bool,
    #[command(flatten)]
    federated: FederatedTokenArgs,
    #[command(flatten)]
    output: OutputArgs,
}

impl Args {
    /// The URL of `--call` and the scope of its token.
    fn call_target(&self) -> Result<Option<(Url, String)>, CommandError> {
        let Some(url) = &self.call else { return Ok(None) };
        let scope = AuthenticatedClient::scope_of(url).ok_or_else(|| {
            CommandError::invalid_input(format!("--call: {} is not an Azure host", url_host(url)))
                .with_hint("give a URL of Azure Resource Manager or of a vault")
        })?;
        Ok(Some((url.clone(), scope)))
    }
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
    token: CheckOutcome,
    call: CheckOutcome,
    ok: bool,
}

impl CredentialCheck {
    /// The failed check of a file that cannot be read.
    fn unreadable(file: &CredentialFile, error: &std::io::Error) -> Self {
        let not_tried = || CheckOutcome::NotTried { reason: "the file cannot be read" };
        Self {
            file: file.name().to_owned(),
            inspection: None,
            read_error: Some(error.to_string()),
            token: not_tried(),
            call: not_tried(),
            ok: false,
        }
    }

    fn to_text(&self) -> String {
        let mut lines = vec![self.file.display().to_string()];
        lines.extend(self.inspection.as_ref().map(|it| it.to_string().trim_end().to_owned()));
        if let Some(error) = &self.read_error {
            lines.push(format!("error: file: {error}\n  hint: {READ_HINT}"));
        }
        lines.extend([self.token.to_text("token", 12), self.call.to_text("call", 12)]);
        lines.push(if self.ok { "good".to_owned() } else { "not good".to_owned() });
        lines.join("\n")
    }
}

pub(crate) async fn run(args: Args, environment: ProcessEnvironment) -> CommandResult {
    let Some(file) = &args.file else { return federated_token::check(&args, &environment).await };
    let files = CredentialFiles::find(file)?;
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
        [check] if !files.is_directory => output::print_value(check, format, |_| check.to_text())?,
        checks => output::print_value(&checks, format, |_| {
            checks.iter().map(CredentialCheck::to_text).collect::<Vec<_>>().join("\n\n")
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
    let target = args.call_target()?;
    let clock = SystemClock::shared();
    let inspection = inspect(&content, clock.now());
    drop(content);
    let not_tried = |reason| CheckOutcome::NotTried { reason };
    let (token, call) = if args.offline {
        (not_tried("--offline"), not_tried("--offline"))
    } else if inspection.is_usable() {
        let requests = AzureRequests::new(target, environment, clock)?;
        let mut options = ReloadingCertificateOptions::default();
        options.transport = requests.token_transport();
        match ReloadingCertificateCredential::open(file.path(), options).await {
            Ok(credential) => {
                let document = inspection.document.as_ref();
                let authority = document.and_then(|it| it.authentication_endpoint.as_ref());
                requests.request_token_and_call(credential, authority.map(Authority::as_url)).await
            }
            Err(error) => {
                let failed = CheckOutcome::of_error(&error, error.hint(), None);
                (failed, not_tried("there is no token"))
            }
        }
    } else {
        (not_tried("the file cannot be used"), not_tried("the file cannot be used"))
    };
    let ok = inspection.is_usable() && !token.is_failed() && !call.is_failed();
    let (file, inspection) = (file.name().to_owned(), Some(inspection));
    Ok(CredentialCheck { file, inspection, read_error: None, token, call, ok })
}

fn url_host(url: &Url) -> &str {
    url.host_str().unwrap_or_default()
}

/// Requests a token from Entra, and then calls a URL.
struct AzureRequests {
    target: Option<(Url, String)>,
    transport: AzureTransport,
    clock: SharedClock,
}

impl AzureRequests {
    fn new(
        target: Option<(Url, String)>,
        environment: &ProcessEnvironment,
        clock: SharedClock,
    ) -> Result<Self, CommandError> {
        let settings = azure_transport::transport_settings(environment)?;
        let transport = azure_transport::build_transport(&settings, &clock)?;
        Ok(Self { target, transport, clock })
    }

    fn token_transport(&self) -> TokenTransport {
        let transport = Some(self.transport.without_rate_limit());
        TokenTransport::new(TokenTransportOptions::new(transport, &self.clock))
    }

    /// Without a URL, the token is for Azure Resource Manager in the cloud of the authority.
    async fn request_token_and_call(
        &self,
        credential: Arc<dyn TokenCredential>,
        authority: Option<&Url>,
    ) -> (CheckOutcome, CheckOutcome) {
        let endpoints =
            authority.and_then(Url::host_str).and_then(CloudEndpoints::of_authority_host);
        let scope = self.target.as_ref().map(|(_, scope)| scope.clone());
        let scope = scope.unwrap_or_else(|| ArmClient::scope(endpoints.unwrap_or(&PUBLIC)));
        let token = self.request_token(&*credential, &scope).await;
        let call = match (&token, &self.target) {
            (CheckOutcome::Good { .. }, Some((url, _))) => {
                let caller = AuthenticatedClient::new(scope, credential, &self.transport);
                call_step(&caller, url).await
            }
            (CheckOutcome::Good { .. }, None) => CheckOutcome::NotTried { reason: "no --call" },
            _ => CheckOutcome::NotTried { reason: "there is no token" },
        };
        (token, call)
    }

    async fn request_token(&self, credential: &dyn TokenCredential, scope: &str) -> CheckOutcome {
        match credential.get_token(&[scope], None).await {
            Ok(token) => {
                let seconds = token.expires_on.unix_timestamp() - self.clock.now().as_second();
                let minutes = seconds / 60;
                let detail = format!("for {scope}, valid for {minutes} more minutes");
                CheckOutcome::Good { detail }
            }
            Err(error) => {
                let reason = TokenError::of(&error);
                let hint = reason.and_then(TokenError::hint);
                let hint = hint.or(Some("see --log lanyard_credential=debug".into()));
                CheckOutcome::of_error(&error, hint, reason.map(TokenError::code).as_deref())
            }
        }
    }
}

async fn call_step(caller: &AuthenticatedClient, url: &Url) -> CheckOutcome {
    match caller.fetch(url).await {
        Ok(reply) => CheckOutcome::Good {
            detail: format!("GET {}{}: {}", url_host(url), url.path(), reply.status),
        },
        Err(error) => CheckOutcome::of_error(&error, error.hint(), None),
    }
}
