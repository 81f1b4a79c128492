//! `azure_security_keyvault_secrets`.

use std::collections::HashMap;
use std::error::Error;

use azure_core::http::RequestContent;
use azure_security_keyvault_secrets::SecretClient;
use azure_security_keyvault_secrets::models::{
    Secret, SecretAttributes, SecretClientGetSecretOptions,
    SecretClientUpdateSecretPropertiesOptions, SetSecretParameters,
    UpdateSecretPropertiesParameters,
};
use futures::TryStreamExt;
use serde_json::{Value, json};

use super::{name_and_version, nothing, report};
use crate::{RustClientInputs, SharedCredential};

const NAME: &str = "lifecycle";
/// 2099-01-01.
const EXPIRES: i64 = 4_070_908_800;

pub(super) async fn run(
    credential: SharedCredential,
    inputs: &RustClientInputs,
) -> Result<(), Box<dyn Error>> {
    let client = SecretClient::new(&inputs.vault, credential, None)?;
    let first = set(&client, NAME, "first").await;
    let first = report("set a secret", first, secret_facts).ok_or("no secret was set")?;
    let (_, version) = name_and_version(first.id.as_deref());
    report("set a new version", set(&client, NAME, "second").await, secret_facts);
    report("get the newest version", get(&client, NAME, None).await, secret_facts);
    report("get the first version", get(&client, NAME, Some(&version)).await, secret_facts);
    let changed = change(&client, &version).await;
    report("change the properties of the first version", changed, property_facts);
    report("get a disabled version", get(&client, NAME, Some(&version)).await, secret_facts);
    report("get a missing secret", get(&client, "missing", None).await, secret_facts);
    let invalid = set(&client, "under_score", "value").await;
    report("set a secret with an invalid name", invalid, secret_facts);
    report("list the versions", list_versions(&client).await, Value::clone);
    report("delete a secret", delete(&client).await, Value::clone);
    report("get a deleted secret", get(&client, NAME, None).await, secret_facts);
    report("set a deleted secret", set(&client, NAME, "third").await, secret_facts);
    let recovered = client.recover_deleted_secret(NAME, None).await;
    let recovered = recovered.and_then(|response| response.into_model());
    report("recover a secret", recovered, property_facts);
    report("get the recovered secret", get(&client, NAME, None).await, secret_facts);
    delete(&client).await?;
    report("purge a secret", client.purge_deleted_secret(NAME, None).await, nothing);
    report("get a purged secret", client.get_deleted_secret(NAME, None).await, nothing);
    Ok(())
}

fn secret_facts(secret: &Secret) -> Value {
    let mut facts = property_facts(secret);
    facts["value"] = json!(secret.value);
    facts
}

fn property_facts(secret: &Secret) -> Value {
    let (name, version) = name_and_version(secret.id.as_deref());
    let attributes = secret.attributes.clone().unwrap_or_default();
    let expires = attributes.expires.map(|time| {
        let expected = time.unix_timestamp() == EXPIRES;
        if expected { "2099-01-01T00:00:00+00:00".to_owned() } else { time.to_string() }
    });
    json!({
        "name": name,
        "version": version,
        "content_type": secret.content_type,
        "enabled": attributes.enabled,
        "expires": expires,
        "tags": secret.tags,
        "recovery_level": attributes.recovery_level.map(|level| level.to_string()),
    })
}

async fn set(client: &SecretClient, name: &str, value: &str) -> azure_core::Result<Secret> {
    let first = value == "first";
    let parameters = SetSecretParameters {
        value: Some(value.to_owned()),
        content_type: first.then(|| "text/plain".to_owned()),
        tags: first.then(|| HashMap::from([("stage".to_owned(), "test".to_owned())])),
        ..SetSecretParameters::default()
    };
    client.set_secret(name, RequestContent::try_from(parameters)?, None).await?.into_model()
}

async fn get(
    client: &SecretClient,
    name: &str,
    version: Option<&str>,
) -> azure_core::Result<Secret> {
    let options = SecretClientGetSecretOptions {
        secret_version: version.map(str::to_owned),
        ..SecretClientGetSecretOptions::default()
    };
    client.get_secret(name, Some(options)).await?.into_model()
}

async fn change(client: &SecretClient, version: &str) -> azure_core::Result<Secret> {
    let parameters = UpdateSecretPropertiesParameters {
        secret_attributes: Some(SecretAttributes {
            enabled: Some(false),
            expires: azure_core::time::OffsetDateTime::from_unix_timestamp(EXPIRES).ok(),
            ..SecretAttributes::default()
        }),
        tags: Some(HashMap::from([("stage".to_owned(), "old".to_owned())])),
        ..UpdateSecretPropertiesParameters::default()
    };
    let options = SecretClientUpdateSecretPropertiesOptions {
        secret_version: Some(version.to_owned()),
        ..SecretClientUpdateSecretPropertiesOptions::default()
    };
    let content = RequestContent::try_from(parameters)?;
    client.update_secret_properties(NAME, content, Some(options)).await?.into_model()
}

async fn list_versions(client: &SecretClient) -> azure_core::Result<Value> {
    let mut pages = client.list_secret_properties_versions(NAME, None)?.into_pages();
    let (mut count, mut names) = (0, Vec::new());
    while let Some(page) = pages.try_next().await? {
        count += 1;
        let items = page.into_model()?.value;
        names.extend(items.iter().map(|item| name_and_version(item.id.as_deref()).0));
    }
    Ok(json!({ "pages": count, "items": names }))
}

async fn delete(client: &SecretClient) -> azure_core::Result<Value> {
    let deleted = client.delete_secret(NAME, None).await?.into_model()?;
    let days = deleted.scheduled_purge_date.zip(deleted.deleted_date);
    Ok(json!({
        "name": name_and_version(deleted.id.as_deref()).0,
        "recovery_id": deleted.recovery_id,
        "days": days.map(|(purge, deleted)| (purge - deleted).whole_days()),
    }))
}
