//! `azure_storage_blob`.

use std::error::Error;

use azure_core::http::{RequestContent, Url};
use azure_storage_blob::BlobServiceClient;
use futures::TryStreamExt;
use serde_json::json;

use super::{nothing, report};
use crate::{RustClientInputs, SharedCredential};

pub(super) async fn run(
    credential: SharedCredential,
    inputs: &RustClientInputs,
) -> Result<(), Box<dyn Error>> {
    let url = format!("https://{}.blob.core.windows.net/", inputs.storage_account);
    let service = BlobServiceClient::new(Url::parse(&url)?, Some(credential), None)?;
    let container = service.blob_container_client("lifecycle-rust");
    let blob = container.blob_client("openid/configuration.json");
    report("create an empty container", container.create(None).await, nothing);
    report("create an existing container", container.create(None).await, nothing);
    let content = br#"{"issuer": "https://issuer.example.org"}"#.to_vec();
    let uploaded = blob.upload(RequestContent::from(content), None).await;
    report("write a blob", uploaded, |_| json!({ "result": null }));
    let downloaded = match blob.download(None).await {
        Ok(response) => response.body.collect_string().await,
        Err(error) => Err(error),
    };
    report("download a blob", downloaded, |text| json!({ "text": text }));
    let listed = match container.list_blobs(None) {
        Ok(pager) => pager.try_collect::<Vec<_>>().await,
        Err(error) => Err(error),
    };
    report(
        "list the blobs",
        listed,
        |blobs| json!({ "items": blobs.iter().map(|blob| blob.name.clone()).collect::<Vec<_>>() }),
    );
    let missing = container.blob_client("missing").get_properties(None).await;
    report("get a missing blob", missing, nothing);
    report("delete a blob", blob.delete(None).await, nothing);
    report("download a deleted blob", blob.download(None).await.map(drop), nothing);
    report("delete the container", container.delete(None).await, nothing);
    let deleted = container.get_properties(None).await;
    report("get the deleted container", deleted, nothing);
    Ok(())
}
