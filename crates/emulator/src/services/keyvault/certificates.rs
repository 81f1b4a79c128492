//! Certificates, read-only. Each has a key and a secret of the same name and version.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use super::object_kind::{GET_CERTIFICATE, KeyVaultObjectKind, LIST_CERTIFICATES, VaultPermission};
use super::object_store::{StoredObjectVersion, VersionedObjectStore};
use super::objects::{StoredObject, attributes_json, object_id, version_id};
use super::vault::{CertificateContent, EmulatedVault, VaultStore};

impl StoredObject for CertificateContent {
    const KIND: KeyVaultObjectKind = KeyVaultObjectKind::Certificate;
    const GET: VaultPermission = GET_CERTIFICATE;
    const LIST: VaultPermission = LIST_CERTIFICATES;

    fn object_store(vaults: &VaultStore) -> &VersionedObjectStore<Self> {
        &vaults.certificates
    }

    fn bundle_json(
        vault: &EmulatedVault,
        name: &str,
        version: &StoredObjectVersion<Self>,
    ) -> Value {
        let (url, id) = (vault.base_url(), &version.id);
        let content = &version.content;
        let mut bundle = Self::item_json(version_id(vault, name, version), vault, version);
        bundle["kid"] = json!(format!("{url}/keys/{name}/{id}"));
        bundle["sid"] = json!(format!("{url}/secrets/{name}/{id}"));
        bundle["cer"] = json!(STANDARD.encode(&content.der));
        bundle["contentType"] = json!(content.secret_type);
        bundle["policy"] = json!({
            "id": format!("{}/policy", object_id::<Self>(vault, name)),
            "key_props": { "exportable": true, "kty": "RSA", "key_size": 2048, "reuse_key": false },
            "secret_props": { "contentType": content.secret_type },
            "x509_props": { "subject": content.subject },
            "issuer": { "name": "Unknown" },
        });
        bundle
    }

    fn item_json(id: String, vault: &EmulatedVault, version: &StoredObjectVersion<Self>) -> Value {
        let thumbprint = digest(&SHA1_FOR_LEGACY_USE_ONLY, &version.content.der);
        let mut item = json!({
            "id": id,
            "x5t": URL_SAFE_NO_PAD.encode(thumbprint),
            "subject": version.content.subject,
            "attributes": attributes_json(version.attributes, vault),
        });
        if !version.tags.is_empty() {
            item["tags"] = json!(version.tags);
        }
        item
    }
}
