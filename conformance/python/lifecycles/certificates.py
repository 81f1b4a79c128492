"""azure-keyvault-certificates, and the secret and the key of a certificate."""

from datetime import timezone

from azure.keyvault.certificates import (
    CertificateClient,
    CertificateContact,
    CertificateContentType,
    CertificatePolicy,
    CertificatePolicyAction,
    LifetimeAction,
)
from azure.keyvault.keys import KeyClient
from azure.keyvault.secrets import SecretClient
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from lifecycle_steps import name_of, pages_of


def policy():
    return CertificatePolicy(
        issuer_name="Self",
        subject="CN=lifecycle.example",
        san_dns_names=["lifecycle.example"],
        key_type="RSA",
        key_size=2048,
        content_type=CertificateContentType.pem,
        validity_in_months=6,
        lifetime_actions=[LifetimeAction(CertificatePolicyAction.auto_renew, days_before_expiry=30)],
    )


def certificate_facts(certificate):
    parsed = x509.load_der_x509_certificate(bytes(certificate.cer))
    names = parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    lifetime = parsed.not_valid_after_utc - parsed.not_valid_before_utc
    return {
        "name": certificate.name,
        "version": certificate.properties.version,
        "enabled": certificate.properties.enabled,
        "tags": certificate.properties.tags,
        "subject": parsed.subject.rfc4514_string(),
        "dns_names": names.get_values_for_type(x509.DNSName),
        "months": round(lifetime.days / 30.4),
        "secret_id": certificate.secret_id,
        "key_id": certificate.key_id,
        "expires_with_the_certificate": certificate.properties.expires_on
        == parsed.not_valid_after_utc.astimezone(timezone.utc),
    }


def policy_facts(policy):
    return {
        "issuer": policy.issuer_name,
        "subject": policy.subject,
        "content_type": policy.content_type,
        "months": policy.validity_in_months,
        "key_type": policy.key_type,
        "key_size": policy.key_size,
        "actions": [
            {"action": it.action, "days_before_expiry": it.days_before_expiry}
            for it in policy.lifetime_actions
        ],
    }


def pem_facts(secret):
    key = serialization.load_pem_private_key(secret.value.encode(), None)
    certificate = x509.load_pem_x509_certificates(secret.value.encode())[0]
    return {
        "content_type": secret.properties.content_type,
        "bits": key.key_size,
        "key_of_the_certificate": key.public_key() == certificate.public_key(),
    }


def run(steps, credential, inputs):
    client = CertificateClient(inputs["vault"], credential)
    secrets = SecretClient(inputs["vault"], credential)
    keys = KeyClient(inputs["vault"], credential)
    certificate = steps.run(
        "create a self-signed certificate",
        lambda: client.begin_create_certificate(
            "certificate-tls", policy(), tags={"stage": "test"}
        ).result(),
        certificate_facts,
    )
    steps.run(
        "get the operation",
        lambda: client.get_certificate_operation("certificate-tls"),
        lambda it: {"status": it.status, "target": it.target, "error": it.error},
    )
    steps.run("get the policy", lambda: client.get_certificate_policy("certificate-tls"), policy_facts)
    pem = steps.run(
        "get the secret of a certificate", lambda: secrets.get_secret("certificate-tls"), pem_facts
    )
    steps.run(
        "get the key of a certificate",
        lambda: keys.get_key("certificate-tls"),
        lambda key: {"type": key.key_type, "managed": key.properties.managed},
    )
    steps.run(
        "set the secret of a certificate", lambda: secrets.set_secret("certificate-tls", "value")
    )
    steps.run(
        "change the properties",
        lambda: client.update_certificate_properties("certificate-tls", tags={"stage": "old"}),
        certificate_facts,
    )
    steps.run(
        "import a certificate with its key",
        lambda: client.import_certificate("certificate-import", pem.value.encode(), policy=policy()),
        lambda imported: {
            "name": imported.name,
            "same_certificate": bytes(imported.cer) == bytes(certificate.cer),
            "thumbprint_digits": len(imported.properties.x509_thumbprint.hex()),
        },
    )
    steps.run(
        "import a certificate without a key",
        lambda: client.import_certificate("certificate-public", bytes(certificate.cer), policy=policy()),
    )
    client.begin_create_certificate("certificate-tls", policy()).wait()
    steps.run(
        "list the versions, one per page",
        lambda: client.list_properties_of_certificate_versions("certificate-tls", max_page_size=1),
        lambda versions: pages_of(versions, name_of),
    )
    steps.run(
        "list the certificates, two per page",
        lambda: client.list_properties_of_certificates(max_page_size=2),
        lambda certificates: pages_of(certificates, name_of),
    )
    steps.run(
        "set the contacts",
        lambda: client.set_contacts([CertificateContact(email="tls@example.org", name="TLS")]),
        lambda contacts: {"emails": [it.email for it in contacts]},
    )
    steps.run("get a missing certificate", lambda: client.get_certificate("missing"))
    steps.run(
        "delete a certificate",
        lambda: client.begin_delete_certificate("certificate-tls").result(),
        lambda deleted: {"name": deleted.name, "recovery_id": deleted.recovery_id},
    )
    steps.run(
        "get the secret of a deleted certificate", lambda: secrets.get_secret("certificate-tls")
    )
    steps.run(
        "recover a certificate",
        lambda: client.begin_recover_deleted_certificate("certificate-tls").result(),
        lambda it: {"name": it.name},
    )
    for name in ("certificate-tls", "certificate-import"):
        client.begin_delete_certificate(name).wait()
    steps.run(
        "purge a certificate", lambda: client.purge_deleted_certificate("certificate-tls")
    )
    steps.run(
        "get a purged certificate", lambda: client.get_deleted_certificate("certificate-tls")
    )
