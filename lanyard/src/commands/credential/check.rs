//! `lanyard credential check`: what is in a credential file, and whether it works.

mod text;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use azure_core::credentials::TokenCredential;
use lanyard_azure::{ArmClient, Caller, Transport};
use lanyard_clock::{SharedClock, SystemClock};
use lanyard_credential::inspect::{Inspection, inspect};
use lanyard_credential::{
    ReloadingCertificateCredential, ReloadingCertificateOptions, TokenError, TokenTransport,
    TokenTransportOptions,
};
use lanyard_vocabulary::{Cloud, causes};
use serde::Serialize;
use url::Url;

use crate::commands::azure_way;
use crate::exit::{CommandError, CommandResult, Exit};
use crate::output::{self, Format};
use crate::settings::Environment;

/// Say what is in a credential file, and whether it works
///
/// Looks into the file (never showing the secret): which keys it has, whether key and certificate
/// belong together, when it expires and has to be renewed. Then asks Entra for a token, and with
/// --call makes one GET request with it. Every failure comes with its next step.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The mounted credential file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// A URL of Azure Resource Manager or of a vault to call with the credential, such as
    /// <https://management.azure.com/subscriptions/ID/resourceGroups?api-version=2021-04-01>
    #[arg(long, value_name = "URL")]
    call: Option<Url>,
    /// Look into the file only: ask nobody
    #[arg(long, conflicts_with = "call")]
    offline: bool,
    /// The form of the findings
    #[arg(long, short, value_enum, default_value = "table", value_name = "FORMAT")]
    output: Format,
}

/// What the check came to.
#[derive(Debug, Serialize)]
struct Check {
    file: PathBuf,
    inspection: Inspection,
    token: Step,
    call: Step,
    ok: bool,
}

/// What became of a request.
#[derive(Debug, Serialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
enum Step {
    /// It was granted.
    Good { detail: String },
    /// It was refused or got no answer.
    Failed { detail: String, next_step: String },
    /// Nobody asked for it, or an earlier step failed.
    NotTried { reason: &'static str },
}

/// Checks the file.
pub(crate) async fn run(args: Args, environment: Environment) -> CommandResult {
    let clock = SystemClock::shared();
    let bytes = std::fs::read(&args.file).map_err(|error| {
        CommandError::invalid(format!("{} cannot be read", args.file.display()))
            .because(&error)
            .hint("give the path of the file in the mount, such as /mnt/certs/<secret name>")
    })?;
    let scope = match &args.call {
        None => None,
        Some(url) => Some(Caller::scope_of(url).ok_or_else(|| {
            CommandError::invalid(format!("--call: {} is no host of Azure", host(url)))
                .hint("give a URL of Azure Resource Manager or of a vault")
        })?),
    };
    let inspection = inspect(&bytes, clock.now());
    drop(bytes);
    let (token, call) = if args.offline {
        (Step::NotTried { reason: "--offline" }, Step::NotTried { reason: "--offline" })
    } else if inspection.is_usable() {
        let target = args.call.as_ref().zip(scope.as_deref());
        ask(&args.file, target, &inspection, &environment, clock).await?
    } else {
        let reason = "the file cannot be used";
        (Step::NotTried { reason }, Step::NotTried { reason })
    };
    let failed = |step: &Step| matches!(step, Step::Failed { .. });
    let ok = inspection.is_usable() && !failed(&token) && !failed(&call);
    let check = Check { file: args.file, inspection, token, call, ok };
    output::print(&match args.output {
        Format::Table => text::render(&check),
        format => output::document(&check, format),
    })?;
    Ok(if check.ok { Exit::Good } else { Exit::Failed })
}

fn host(url: &Url) -> &str {
    url.host_str().unwrap_or_default()
}

/// Asks Entra, and then the service that is to be called.
async fn ask(
    file: &Path,
    target: Option<(&Url, &str)>,
    inspection: &Inspection,
    environment: &Environment,
    clock: SharedClock,
) -> Result<(Step, Step), CommandError> {
    let transport = transport(environment, Arc::clone(&clock))?;
    let mut token_options = TokenTransportOptions::default();
    token_options.clock = Arc::clone(&clock);
    token_options.client.transport = Some(transport.unpaced());
    let mut options = ReloadingCertificateOptions::default();
    options.transport = TokenTransport::new(token_options);
    let credential = match ReloadingCertificateCredential::open(file, options).await {
        Ok(credential) => credential,
        Err(error) => {
            let next_step = error.hint();
            let failed = Step::Failed { detail: causes(&error), next_step };
            return Ok((failed, Step::NotTried { reason: "there is no token" }));
        }
    };
    let scope = target.map_or_else(|| arm_scope(inspection), |(_, scope)| scope.to_owned());
    let token = token_step(&credential, &scope, &clock).await;
    let call = match (&token, target) {
        (Step::Good { .. }, Some((url, _))) => {
            call_step(&Caller::new(scope, credential, &transport), url).await
        }
        (Step::Good { .. }, None) => Step::NotTried { reason: "no --call" },
        _ => Step::NotTried { reason: "there is no token" },
    };
    Ok((token, call))
}

async fn token_step(
    credential: &ReloadingCertificateCredential,
    scope: &str,
    clock: &SharedClock,
) -> Step {
    match credential.get_token(&[scope], None).await {
        Ok(token) => {
            let seconds = token.expires_on.unix_timestamp() - clock.now().as_second();
            let minutes = seconds / 60;
            Step::Good { detail: format!("for {scope}, valid for {minutes} more minutes") }
        }
        Err(error) => {
            let hint = TokenError::of(&error).and_then(TokenError::hint);
            let next_step = hint.unwrap_or_else(|| "see --log lanyard_credential=debug".to_owned());
            Step::Failed { detail: causes(&error), next_step }
        }
    }
}

async fn call_step(caller: &Caller, url: &Url) -> Step {
    match caller.fetch(url).await {
        Ok(reply) => {
            Step::Good { detail: format!("GET {}{}: {}", host(url), url.path(), reply.status) }
        }
        Err(error) => Step::Failed { detail: causes(&error), next_step: error.hint().to_owned() },
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

fn transport(environment: &Environment, clock: SharedClock) -> Result<Transport, CommandError> {
    azure_way::transport(&azure_way::settings(environment)?, &clock)
}
