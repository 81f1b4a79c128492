//! Blobs of the local Azure beside Azurite: start, memory, and the throughput of anonymous reads and signed
//! writes. Both servers use TLS with HTTP/1.1, have the same account, and receive the same requests.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use lanyard_clock::{Clock, SystemClock};
use libtest_mimic::Failed;
use serde_json::{Value, json};

use super::azure_client::SubscriptionOwner;
use super::blob_requests::{BlobAccount, get_blob};
use super::https_connection::{HttpVersion, HttpsTarget};
use super::key_vault_benchmark::{ComparedServer, LOAD_CONNECTIONS, compare_loads};
use super::load_generator::{LoadShape, require_success};
use super::server_certificate::ServerCertificate;
use super::server_process::{LanyardServer, ServerProcess, StateStorage, start_azurite};
use super::{
    AZURITE_SUBJECT, AzureBenchmarkInputs, AzureMeasurements, LANYARD_SUBJECT, median_milliseconds,
};
use crate::waiting::sleep;

const ACCOUNT: &str = "lanyardbenchmark";

pub(super) async fn measure_blobs(
    inputs: &AzureBenchmarkInputs,
    directory: &Path,
) -> Result<AzureMeasurements, Failed> {
    let mut results = AzureMeasurements::default();
    let certificate = ServerCertificate::issue(&BlobAccount::host(ACCOUNT), directory)?;
    let azurite =
        inputs.azurite_script.as_deref().map(|script| Azurite { script, certificate, directory });
    let lanyard = LanyardBlobs { inputs, directory };
    measure_lanyard_starts(&lanyard, &mut results).await?;
    if let Some(azurite) = &azurite {
        measure_azurite_starts(azurite, inputs.scale.starts, &mut results).await?;
    }
    measure_loads(&lanyard, azurite.as_ref(), &mut results).await?;
    Ok(results)
}

/// Measures the time from the start of a local Azure to the first read of a blob that an earlier process has
/// stored.
async fn measure_lanyard_starts(
    lanyard: &LanyardBlobs<'_>,
    results: &mut AzureMeasurements,
) -> Result<(), Failed> {
    let state = lanyard.directory.join("state");
    let first = lanyard.start(StateStorage::Directory(&state))?;
    let target = first.target(&BlobAccount::host(ACCOUNT))?;
    let key = create_account(&first).await?;
    blob_account(&target, &key)?.create_blobs().await?;
    first.process.stop().await?;
    let mut times = Vec::new();
    for _ in 0..lanyard.inputs.scale.starts {
        let server = lanyard.start(StateStorage::Directory(&state))?;
        read_one_blob(&server.target(&BlobAccount::host(ACCOUNT))?).await?;
        times.push(server.process.age());
        server.process.stop().await?;
    }
    results.add(LANYARD_SUBJECT, "first_blob", "ms", median_milliseconds(times)?);
    Ok(())
}

/// Like [`measure_lanyard_starts`], for Azurite.
async fn measure_azurite_starts(
    azurite: &Azurite<'_>,
    starts: usize,
    results: &mut AzureMeasurements,
) -> Result<(), Failed> {
    let location = azurite.directory.join("azurite");
    let key = STANDARD.encode([7; 64]);
    let first = azurite.start(&key, Some(&location))?;
    blob_account(&azurite.target(&first)?, &key)?.create_blobs().await?;
    first.stop().await?;
    let mut times = Vec::new();
    for _ in 0..starts {
        let server = azurite.start(&key, Some(&location))?;
        read_one_blob(&azurite.target(&server)?).await?;
        times.push(server.age());
        server.stop().await?;
    }
    results.add(AZURITE_SUBJECT, "first_blob", "ms", median_milliseconds(times)?);
    Ok(())
}

/// Compares the servers with their blobs in memory.
async fn measure_loads(
    lanyard: &LanyardBlobs<'_>,
    azurite: Option<&Azurite<'_>>,
    results: &mut AzureMeasurements,
) -> Result<(), Failed> {
    let scale = lanyard.inputs.scale;
    let server = lanyard.start(StateStorage::Memory)?;
    let key = create_account(&server).await?;
    let target = server.target(&BlobAccount::host(ACCOUNT))?;
    let mut running = vec![(LANYARD_SUBJECT, server.process, target)];
    if let Some(azurite) = azurite {
        let server = azurite.start(&key, None)?;
        sleep(scale.rest).await;
        let memory = server.memory()?;
        results.add(AZURITE_SUBJECT, "idle_memory", "MiB", memory.resident);
        results.add(AZURITE_SUBJECT, "idle_memory_own", "MiB", memory.anonymous);
        let target = azurite.target(&server)?;
        running.push((AZURITE_SUBJECT, server, target));
    }
    let mut compared = Vec::new();
    for (subject, process, target) in &running {
        blob_account(target, &key)?.create_blobs().await?;
        compared.push(ComparedServer { subject, target: target.clone(), process });
    }
    let shape = LoadShape {
        version: HttpVersion::Http1,
        connections: LOAD_CONNECTIONS,
        warm_up: scale.warm_up,
        window: scale.window,
    };
    let load = (shape, scale.rounds);
    compare_loads(results, "get_blob", &compared, load, &BlobAccount::get_blobs()?).await?;
    let (_, _, target) = running.first().ok_or("no server runs")?;
    let writes = blob_account(target, &key)?.put_blobs()?;
    compare_loads(results, "put_blob", &compared, load, &writes).await?;
    sleep(scale.rest).await;
    for (subject, process, _) in &running {
        let memory = process.memory()?;
        results.add(subject, "blob_memory", "MiB", memory.resident);
        results.add(subject, "blob_memory_own", "MiB", memory.anonymous);
    }
    Ok(())
}

/// Starts the local Azure.
struct LanyardBlobs<'a> {
    inputs: &'a AzureBenchmarkInputs,
    directory: &'a Path,
}

impl LanyardBlobs<'_> {
    fn start(&self, storage: StateStorage<'_>) -> Result<LanyardServer, Failed> {
        let (program, cluster) = (&self.inputs.lanyard_program, &self.inputs.hosted_cluster);
        LanyardServer::start(program, cluster, storage, self.directory)
    }
}

/// Starts Azurite.
struct Azurite<'a> {
    script: &'a Path,
    certificate: ServerCertificate,
    directory: &'a Path,
}

impl Azurite<'_> {
    /// Starts Azurite with one account. Without a `location`, the blobs are in memory.
    fn start(&self, key: &str, location: Option<&Path>) -> Result<ServerProcess, Failed> {
        let account = format!("{ACCOUNT}:{key}");
        start_azurite(self.script, &self.certificate, &account, location, self.directory)
    }

    fn target(&self, server: &ServerProcess) -> Result<HttpsTarget, Failed> {
        let (address, host) = (server.address(), BlobAccount::host(ACCOUNT));
        HttpsTarget::direct(address, &host, &self.certificate.authority_pem)
    }
}

/// Creates the account in a local Azure and returns its key in base64.
async fn create_account(server: &LanyardServer) -> Result<String, Failed> {
    let owner = SubscriptionOwner::sign_in(server).await?;
    let group = format!("{}/resourceGroups/benchmark", owner.subscription);
    owner.put_resource(&group, "2021-04-01", &json!({ "location": "westeurope" })).await?;
    let account = format!("{group}/providers/Microsoft.Storage/storageAccounts/{ACCOUNT}");
    let body = json!({
        "location": "westeurope",
        "kind": "StorageV2",
        "sku": { "name": "Standard_LRS" },
        "properties": { "allowBlobPublicAccess": true },
    });
    owner.put_resource(&account, STORAGE_API_VERSION, &body).await?;
    let path = format!("{account}/listKeys?api-version={STORAGE_API_VERSION}");
    let keys = owner.send(&owner.arm_token.request(Method::POST, &path)?).await?;
    let keys: Value = serde_json::from_slice(&keys.body)?;
    let key = keys["keys"][0]["value"].as_str().ok_or("the account has no key")?;
    Ok(key.to_owned())
}

const STORAGE_API_VERSION: &str = "2024-01-01";

fn blob_account(target: &HttpsTarget, key: &str) -> Result<BlobAccount, Failed> {
    BlobAccount::new(target.clone(), ACCOUNT, key, SystemClock::new().now())
}

async fn read_one_blob(target: &HttpsTarget) -> Result<(), Failed> {
    let request = get_blob(0)?;
    require_success(&request, &target.send(&request).await?)
}
