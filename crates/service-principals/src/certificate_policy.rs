//! How the vault issues and renews the certificates.

use std::collections::HashMap;

use azure_security_keyvault_certificates::models::{
    CertificatePolicy, CertificatePolicyAction, CreateCertificateParameters, IssuerParameters,
    KeyProperties, KeyType, KeyUsageType, LifetimeAction, LifetimeActionTrigger,
    LifetimeActionType, SecretProperties, X509CertificateProperties,
};
use lanyard_vocabulary::SecretName;

use crate::credential_times::RENEWAL_DAYS;

const VALIDITY_MONTHS: i32 = 12;
const KEY_BITS: i32 = 2048;

/// The request for a self-signed certificate: valid for one year, and renewed by the vault 90 days before its
/// end, as `az ad sp create-for-rbac --create-cert` requests it. Each version has a new key; `az` reuses the key.
pub(crate) fn certificate_request(
    name: &SecretName,
    tags: HashMap<String, String>,
) -> CreateCertificateParameters {
    let key = KeyProperties {
        exportable: Some(true),
        key_type: Some(KeyType::Rsa),
        key_size: Some(KEY_BITS),
        reuse_key: Some(false),
        ..KeyProperties::default()
    };
    let certificate = X509CertificateProperties {
        subject: Some(format!("CN={name}")),
        key_usage: Some(vec![KeyUsageType::DigitalSignature, KeyUsageType::KeyEncipherment]),
        validity_in_months: Some(VALIDITY_MONTHS),
        ..X509CertificateProperties::default()
    };
    let renewal = LifetimeAction {
        action: Some(LifetimeActionType { action_type: Some(CertificatePolicyAction::AutoRenew) }),
        trigger: Some(LifetimeActionTrigger {
            days_before_expiry: Some(RENEWAL_DAYS),
            lifetime_percentage: None,
        }),
    };
    let issuer = IssuerParameters { name: Some("Self".to_owned()), ..IssuerParameters::default() };
    let policy = CertificatePolicy {
        issuer_parameters: Some(issuer),
        key_properties: Some(key),
        lifetime_actions: Some(vec![renewal]),
        // The format that HyperShift's scripts store; the reader also accepts PEM.
        secret_properties: Some(SecretProperties {
            content_type: Some("application/x-pkcs12".to_owned()),
        }),
        x509_certificate_properties: Some(certificate),
        ..CertificatePolicy::default()
    };
    CreateCertificateParameters {
        certificate_policy: Some(policy),
        tags: Some(tags),
        ..CreateCertificateParameters::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_has_this_json() {
        let name = "cpo-dev".parse().unwrap();
        let sent = serde_json::to_value(certificate_request(&name, HashMap::new())).unwrap();
        let expected = serde_json::json!({
            "policy": {
                "issuer": { "name": "Self" },
                "key_props": {
                    "exportable": true, "key_size": 2048, "kty": "RSA", "reuse_key": false,
                },
                "lifetime_actions": [{
                    "action": { "action_type": "AutoRenew" },
                    "trigger": { "days_before_expiry": 90 },
                }],
                "secret_props": { "contentType": "application/x-pkcs12" },
                "x509_props": {
                    "key_usage": ["digitalSignature", "keyEncipherment"],
                    "subject": "CN=cpo-dev",
                    "validity_months": 12,
                },
            },
            "tags": {},
        });
        assert_eq!(sent, expected);
    }
}
