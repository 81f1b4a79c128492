//! `azure_security_keyvault_certificates`.

use std::error::Error;

use azure_core::http::RequestContent;
use azure_security_keyvault_certificates::CertificateClient;
use azure_security_keyvault_certificates::models::{
    CertificatePolicy, CreateCertificateParameters, IssuerParameters, X509CertificateProperties,
};
use serde_json::json;

use super::{name_and_version, nothing, report};
use crate::{RustClientInputs, SharedCredential};

const NAME: &str = "certificate-tls";

pub(super) async fn run(
    credential: SharedCredential,
    inputs: &RustClientInputs,
) -> Result<(), Box<dyn Error>> {
    let client = CertificateClient::new(&inputs.vault, credential, None)?;
    let parameters = CreateCertificateParameters {
        certificate_policy: Some(CertificatePolicy {
            issuer_parameters: Some(IssuerParameters {
                name: Some("Self".to_owned()),
                ..IssuerParameters::default()
            }),
            x509_certificate_properties: Some(X509CertificateProperties {
                subject: Some("CN=lifecycle.example".to_owned()),
                validity_in_months: Some(6),
                ..X509CertificateProperties::default()
            }),
            ..CertificatePolicy::default()
        }),
        ..CreateCertificateParameters::default()
    };
    let poller =
        client.begin_create_certificate(NAME, RequestContent::try_from(parameters)?, None)?;
    let certificate = poller.await.and_then(|response| response.into_model());
    report("create a certificate", certificate, |certificate| {
        let (name, version) = name_and_version(certificate.id.as_deref());
        json!({
            "name": name,
            "version": version,
            "secret_id": certificate.sid,
            "key_id": certificate.kid,
            "empty": certificate.cer.as_ref().is_none_or(|der| der.is_empty()),
        })
    });
    report("get a missing certificate", client.get_certificate("missing", None).await, nothing);
    let deleted = client.delete_certificate(NAME, None).await;
    report("delete a certificate", deleted.and_then(|it| it.into_model()), |deleted| {
        let (name, _) = name_and_version(deleted.id.as_deref());
        json!({ "name": name, "recovery_id": deleted.recovery_id })
    });
    report("purge a certificate", client.purge_deleted_certificate(NAME, None).await, nothing);
    report("get a purged certificate", client.get_deleted_certificate(NAME, None).await, nothing);
    Ok(())
}
