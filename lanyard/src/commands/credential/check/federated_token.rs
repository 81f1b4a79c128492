//! `lanyard credential check --federated-token`: finds the first broken hop of a workload identity.

use std::path::{Path, PathBuf};

use lanyard_clock::{SharedClock, SystemClock};
use lanyard_credential::{FederatedTokenCredential, FederatedTokenSettings};
use lanyard_diagnosis::{
    CheckOutcome, Evidence, FederatedCredential, TokenClaims, WorkloadIdentityEvidence, diagnose,
    has_no_matching_credential,
};
use url::Url;

use super::credential_files::{CredentialFile, read_error};
use super::{Args, AzureRequests};
use crate::exit::{CommandError, CommandExit, CommandResult, ExternalResult as _, ResultExt as _};
use crate::output;
use crate::settings::ProcessEnvironment;

/// The flags for a token in place of a credential file.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Workload identity")]
pub(super) struct FederatedTokenArgs {
    /// The projected ServiceAccount token to check in place of a credential file; `-` reads standard input
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    federated_token: Option<PathBuf>,
    /// The client id of the identity [default: `AZURE_CLIENT_ID`]
    #[arg(long, value_name = "ID", requires = "federated_token")]
    client_id: Option<String>,
    /// The tenant of the identity [default: `AZURE_TENANT_ID`]
    #[arg(long, value_name = "ID", requires = "federated_token")]
    tenant_id: Option<String>,
    /// The output of `az identity federated-credential list` for the identity, to compare the token with
    #[arg(long, value_name = "FILE", requires = "federated_token")]
    federated_credentials: Option<PathBuf>,
}

/// Checks the token, exchanges it unless `--offline`, and prints the diagnosis.
pub(super) async fn check(args: &Args, environment: &ProcessEnvironment) -> CommandResult {
    let (target, flags) = (args.call_target()?, &args.federated);
    let token_file = flags.federated_token.as_deref().unwrap_or(Path::new("-"));
    let (file, content) = read(token_file)?;
    let (clock, source) = (SystemClock::shared(), file.name().display().to_string());
    let mut settings = FederatedTokenSettings::default();
    settings.client_id = flags.client_id.clone().or_else(|| environment.azure_client_id.clone());
    settings.tenant_id = flags.tenant_id.clone().or_else(|| environment.azure_tenant_id.clone());
    settings.token_file = Some(file.path().to_owned());
    settings.authority_host.clone_from(&environment.azure_authority_host);
    let mut evidence = WorkloadIdentityEvidence {
        client_id: settings.client_id.clone(),
        token: Some(Evidence { source, value: TokenClaims::parse(&content) }),
        federated_credentials: federated_credentials(flags.federated_credentials.as_deref())?,
        ..WorkloadIdentityEvidence::default()
    };
    drop(content);
    let is_identity_known = settings.client_id.is_some() && settings.tenant_id.is_some();
    if args.offline {
        evidence.exchange = CheckOutcome::NotTried { reason: "--offline" };
    } else if !is_identity_known && target.is_none() {
        let reason = "it needs --client-id and --tenant-id";
        evidence.exchange = CheckOutcome::NotTried { reason };
    } else if evidence.token.as_ref().is_some_and(|token| token.value.is_ok()) {
        let requests = AzureRequests::new(target, environment, SharedClock::clone(&clock))?;
        exchange(&requests, &settings, &mut evidence).await?;
    }
    let diagnosis = diagnose(&evidence, clock.now());
    let text = |_| format!("{}\n{diagnosis}", file.name().display());
    output::print_value(&diagnosis, args.output.format, text)?;
    let is_good = diagnosis.first_broken_hop.is_none();
    Ok(if is_good { CommandExit::Success } else { CommandExit::Failed })
}

/// Exchanges the token, several times if Entra ID may not know a new federated credential everywhere yet.
async fn exchange(
    requests: &AzureRequests,
    settings: &FederatedTokenSettings,
    evidence: &mut WorkloadIdentityEvidence,
) -> Result<(), CommandError> {
    let authority = settings.authority_host.as_deref().and_then(|text| Url::parse(text).ok());
    for _ in 0..MAX_EXCHANGES {
        let tokens = requests.token_transport();
        let credential = FederatedTokenCredential::from_settings(settings.clone(), tokens)
            .map_err(|error| CommandError::invalid_input(error.to_string()))?;
        (evidence.exchange, evidence.role) =
            requests.request_token_and_call(credential, authority.as_ref()).await;
        if !has_no_matching_credential(&evidence.exchange) {
            break;
        }
    }
    Ok(())
}

fn read(path: &Path) -> Result<(CredentialFile, Vec<u8>), CommandError> {
    let file = CredentialFile::open(path)?;
    let content = file.read().map_err(|error| read_error(path, &error))?;
    Ok((file, content))
}

fn federated_credentials(
    path: Option<&Path>,
) -> Result<Option<Evidence<Vec<FederatedCredential>>>, CommandError> {
    let Some(path) = path else { return Ok(None) };
    let (_, content) = read(path)?;
    let value = serde_json::from_slice(&content)
        .or_invalid(format_args!("{} is not a list of federated credentials", path.display()))
        .hint("give the output of `az identity federated-credential list --output json`")?;
    Ok(Some(Evidence { source: path.display().to_string(), value }))
}

/// Even with an old federated credential, some 2 % of exchanges fail because no federated credential matches
/// (kedacore/keda#8152).
const MAX_EXCHANGES: usize = 3;
