//! `azure_security_keyvault_keys`.

use std::error::Error;

use azure_core::http::RequestContent;
use azure_security_keyvault_keys::KeyClient;
use azure_security_keyvault_keys::models::{
    CreateKeyParameters, EncryptionAlgorithm, Key, KeyOperationParameters, KeyType,
};
use serde_json::{Value, json};

use super::{name_and_version, nothing, report};
use crate::{RustClientInputs, SharedCredential};

const NAME: &str = "lifecycle";

pub(super) async fn run(
    credential: SharedCredential,
    inputs: &RustClientInputs,
) -> Result<(), Box<dyn Error>> {
    let client = KeyClient::new(&inputs.vault, credential, None)?;
    let created = create(&client, NAME, 2048).await;
    let created = report("create an RSA key", created, key_facts).ok_or("no key was created")?;
    let id = created.key.as_ref().and_then(|key| key.kid.as_deref());
    let (_, version) = name_and_version(id);
    report("create a key of 1024 bits", create(&client, "small", 1024).await, key_facts);
    run_encryption(&client, &version).await?;
    report("get a missing key", client.get_key("missing", None).await, nothing);
    let deleted = client.delete_key(NAME, None).await.and_then(|response| response.into_model());
    report("delete a key", deleted, |deleted| {
        let id = deleted.key.as_ref().and_then(|key| key.kid.as_deref());
        json!({ "name": name_and_version(id).0, "recovery_id": deleted.recovery_id })
    });
    report("get a deleted key", client.get_key(NAME, None).await, nothing);
    report("purge a key", client.purge_deleted_key(NAME, None).await, nothing);
    report("get a purged key", client.get_deleted_key(NAME, None).await, nothing);
    Ok(())
}

async fn create(client: &KeyClient, name: &str, bits: i32) -> azure_core::Result<Key> {
    let parameters = CreateKeyParameters {
        kty: Some(KeyType::Rsa),
        key_size: Some(bits),
        tags: Some([("stage".to_owned(), "test".to_owned())].into()),
        ..CreateKeyParameters::default()
    };
    client.create_key(name, RequestContent::try_from(parameters)?, None).await?.into_model()
}

fn key_facts(created: &Key) -> Value {
    let key = created.key.clone().unwrap_or_default();
    let (name, version) = name_and_version(key.kid.as_deref());
    let mut operations: Vec<_> =
        key.key_ops.iter().flatten().map(|operation| operation.to_string()).collect();
    operations.sort();
    json!({
        "name": name,
        "version": version,
        "type": key.kty.map(|kind| kind.to_string()),
        "operations": operations,
        "enabled": created.attributes.as_ref().and_then(|it| it.enabled),
        "tags": created.tags,
        "bits": 8 * key.n.map_or(0, |modulus| modulus.len()),
        "private": key.d.is_some(),
    })
}

fn oaep(value: Vec<u8>) -> azure_core::Result<RequestContent<KeyOperationParameters>> {
    RequestContent::try_from(KeyOperationParameters {
        algorithm: Some(EncryptionAlgorithm::RsaOaep256),
        value: Some(value),
        ..KeyOperationParameters::default()
    })
}

async fn run_encryption(client: &KeyClient, version: &str) -> azure_core::Result<()> {
    let length = |result: &Vec<u8>| json!({ "length": result.len() });
    let result_of = |response: azure_security_keyvault_keys::models::KeyOperationResult| {
        response.result.unwrap_or_default()
    };
    let encrypted = client.encrypt(NAME, oaep(b"the key of a disk".to_vec())?, None).await;
    let encrypted = encrypted.and_then(|it| it.into_model()).map(result_of);
    let encrypted = report("encrypt", encrypted, length).unwrap_or_default();
    let decrypted = client.decrypt(NAME, version, oaep(encrypted)?, None).await;
    let decrypted = decrypted.and_then(|it| it.into_model()).map(result_of);
    report("decrypt", decrypted, |it| json!({ "plaintext": String::from_utf8_lossy(it) }));
    let wrapped = client.wrap_key(NAME, oaep(b"0".repeat(32))?, None).await;
    let wrapped = wrapped.and_then(|it| it.into_model()).map(result_of);
    let wrapped = report("wrap a key", wrapped, length).unwrap_or_default();
    let unwrapped = client.unwrap_key(NAME, version, oaep(wrapped)?, None).await;
    let unwrapped = unwrapped.and_then(|it| it.into_model()).map(result_of);
    report("unwrap a key", unwrapped, |it| json!({ "key": String::from_utf8_lossy(it) }));
    let invalid = client.decrypt(NAME, version, oaep(vec![0; 256])?, None).await;
    report("decrypt invalid data", invalid, nothing);
    Ok(())
}
