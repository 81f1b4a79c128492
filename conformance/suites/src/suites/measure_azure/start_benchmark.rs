//! The time from the start of a process to its first successful responses.

use std::path::Path;
use std::time::Duration;

use http::Method;
use libtest_mimic::Failed;

use super::azure_client::OwnerCredentials;
use super::load_generator::require_success;
use super::server_process::{LanyardServer, StateStorage};
use super::{AzureBenchmarkInputs, AzureMeasurements, LANYARD_SUBJECT, median_milliseconds};

pub(super) async fn measure_starts(
    inputs: &AzureBenchmarkInputs,
    directory: &Path,
) -> Result<AzureMeasurements, Failed> {
    let state = directory.join("state");
    let start = || {
        LanyardServer::start(
            &inputs.lanyard_program,
            &inputs.hosted_cluster,
            StateStorage::Directory(&state),
            directory,
        )
    };
    let first = start()?;
    let first_start = first.process.age();
    let credentials = OwnerCredentials::fetch(&first).await?;
    first.process.stop().await?;
    let (mut tokens, mut secrets) = (Vec::new(), Vec::new());
    for _ in 0..inputs.scale.starts {
        let server = start()?;
        let (token, secret) = time_first_responses(&server, &credentials).await?;
        tokens.push(token);
        secrets.push(secret);
        server.process.stop().await?;
    }
    let mut results = AzureMeasurements::default();
    let mut add = |metric, value| results.add(LANYARD_SUBJECT, metric, "ms", value);
    add("first_start", first_start.as_secs_f64() * 1e3);
    add("first_token", median_milliseconds(tokens)?);
    add("first_secret", median_milliseconds(secrets)?);
    Ok(results)
}

/// The times from the start of the process until it has returned a token, and then a secret.
async fn time_first_responses(
    server: &LanyardServer,
    credentials: &OwnerCredentials,
) -> Result<(Duration, Duration), Failed> {
    let token = credentials.token(server, "https://vault.azure.net").await?;
    let token_time = server.process.age();
    let path = format!("/secrets/{}?api-version=7.4", credentials.secret_name);
    let request = token.request(Method::GET, &path)?;
    let response = server.target(&credentials.vault_host)?.send(&request).await?;
    require_success(&request, &response)?;
    Ok((token_time, server.process.age()))
}
