//! Memory of the local Azure, and the throughput of reading secrets beside a server that returns the same
//! bytes.

use std::fs;
use std::path::Path;

use http::header::{CONNECTION, CONTENT_LENGTH};
use libtest_mimic::Failed;
use serde_json::json;

use super::https_connection::{FullResponse, HttpVersion, HttpsTarget};
use super::load_generator::{LoadResult, LoadShape, RequestSource, measure_load, require_success};
use super::server_certificate::ServerCertificate;
use super::server_process::{LanyardServer, ServerProcess, StateStorage, start_bare_server};
use super::stored_objects::BenchmarkObjects;
use super::{
    AzureBenchmarkInputs, AzureMeasurements, BARE_SERVER_SUBJECT, LANYARD_SUBJECT, print_progress,
};
use crate::waiting::sleep;

/// The number of connections of a load.
pub(super) const LOAD_CONNECTIONS: usize = 32;
/// The objects of the loaded server.
const LOADED_SECRETS: usize = 10_000;
const LOADED_RESOURCES: usize = 5_000;

pub(super) async fn measure_key_vault(
    inputs: &AzureBenchmarkInputs,
    directory: &Path,
) -> Result<AzureMeasurements, Failed> {
    let mut results = AzureMeasurements::default();
    let lanyard = LanyardServer::start(
        &inputs.lanyard_program,
        &inputs.hosted_cluster,
        StateStorage::Memory,
        directory,
    )?;
    sleep(inputs.scale.rest).await;
    let memory = lanyard.process.memory()?;
    results.add(LANYARD_SUBJECT, "idle_memory", "MiB", memory.resident);
    results.add(LANYARD_SUBJECT, "idle_memory_own", "MiB", memory.anonymous);
    let objects = BenchmarkObjects::create(&lanyard).await?;
    objects.add_secrets(0..LOADED_SECRETS.min(inputs.scale.objects)).await?;
    objects.add_identities(0..LOADED_RESOURCES.min(inputs.scale.objects)).await?;
    sleep(inputs.scale.rest).await;
    let memory = lanyard.process.memory()?;
    results.add(LANYARD_SUBJECT, "loaded_memory", "MiB", memory.resident);
    results.add(LANYARD_SUBJECT, "loaded_memory_own", "MiB", memory.anonymous);

    let bare = start_bare_server_with_secret(inputs, &objects, directory).await?;
    let source = objects.get_secrets(LOADED_SECRETS.min(inputs.scale.objects))?;
    for version in [HttpVersion::Http1, HttpVersion::Http2] {
        let shape = LoadShape {
            version,
            connections: LOAD_CONNECTIONS,
            warm_up: inputs.scale.warm_up,
            window: inputs.scale.window,
        };
        let sides = [
            ComparedServer {
                subject: BARE_SERVER_SUBJECT,
                target: bare.target.clone(),
                process: &bare.process,
            },
            ComparedServer {
                subject: LANYARD_SUBJECT,
                target: objects.vault.clone(),
                process: &lanyard.process,
            },
        ];
        let name = match version {
            HttpVersion::Http1 => "get_secret_http1",
            HttpVersion::Http2 => "get_secret_http2",
        };
        compare_loads(&mut results, name, &sides, (shape, inputs.scale.rounds), &source).await?;
    }
    Ok(results)
}

/// A server of a comparison.
pub(super) struct ComparedServer<'a> {
    pub(super) subject: &'static str,
    pub(super) target: HttpsTarget,
    pub(super) process: &'a ServerProcess,
}

/// Measures the same load on several servers in turn, for a number of rounds. The best round of each server
/// counts, because other programs can only slow a round down.
pub(super) async fn compare_loads(
    results: &mut AzureMeasurements,
    name: &str,
    servers: &[ComparedServer<'_>],
    (shape, rounds): (LoadShape, usize),
    source: &RequestSource,
) -> Result<(), Failed> {
    let mut best: Vec<Option<LoadResult>> = servers.iter().map(|_| None).collect();
    for _ in 0..rounds {
        for (server, best) in servers.iter().zip(&mut best) {
            let found = measure_load(&server.target, shape, source, server.process.pid()).await?;
            print_progress(&format!("{}: {name} {found:?}", server.subject));
            if best.as_ref().is_none_or(|best| best.rate < found.rate) {
                *best = Some(found);
            }
        }
    }
    for (server, best) in servers.iter().zip(best) {
        let best = best.ok_or("no round was measured")?;
        let mut add = |metric: &str, unit, value| {
            results.add(server.subject, &format!("{name}_{metric}"), unit, value);
        };
        add("rate", "requests/s", best.rate);
        add("p99", "ms", best.slow_percentile);
        add("processor_time", "µs", best.server_time);
        add("generator_share", "%", best.generator_share);
    }
    Ok(())
}

/// The server that returns the same bytes as a vault.
struct BareServer {
    process: ServerProcess,
    target: HttpsTarget,
}

async fn start_bare_server_with_secret(
    inputs: &AzureBenchmarkInputs,
    objects: &BenchmarkObjects,
    directory: &Path,
) -> Result<BareServer, Failed> {
    let request = objects.get_secret()?;
    let response = objects.vault.send(&request).await?;
    require_success(&request, &response)?;
    let file = directory.join("response.json");
    fs::write(&file, response_file(&response)?)?;
    let host = "bare.vault.azure.net";
    let certificate = ServerCertificate::issue(host, directory)?;
    let process = start_bare_server(&inputs.bare_server_program, &certificate, &file, directory)?;
    let target = HttpsTarget::direct(process.address(), host, &certificate.authority_pem)?;
    Ok(BareServer { process, target })
}

/// The response in the format of the bare server, without the headers that the HTTP stack sets.
fn response_file(response: &FullResponse) -> Result<String, Failed> {
    let headers = response
        .headers
        .iter()
        .filter(|(name, _)| **name != CONTENT_LENGTH && **name != CONNECTION)
        .map(|(name, value)| Ok((name.as_str(), value.to_str()?)))
        .collect::<Result<Vec<_>, Failed>>()?;
    let body = std::str::from_utf8(&response.body)?;
    let status = response.status.as_u16();
    Ok(json!({ "status": status, "headers": headers, "body": body }).to_string())
}
