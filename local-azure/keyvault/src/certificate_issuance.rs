//! Creates certificates and certificate requests from a policy.

use std::net::IpAddr;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Span, Timestamp};
use lanyard_emulator_state::certificates::set_validity;
use lanyard_emulator_state::keys::{AsymmetricKey, AsymmetricKeyError, CertificateSigner};
use lanyard_emulator_state::vaults::certificate_policy::{
    AlternativeNames, CertificatePolicy, X509Properties,
};
use lanyard_emulator_state::vaults::der_certificate::DerCertificate;
use rcgen::string::Ia5String;
use rcgen::{
    CertificateParams, ExtendedKeyUsagePurpose, IsCa, KeyUsagePurpose, OtherNameValue, SanType,
    SerialNumber,
};
use uuid::Uuid;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;

use super::distinguished_name::{format_name, parse_name, parse_oid};

/// The longest validity: 100 years.
pub(super) const MAX_VALIDITY_MONTHS: u32 = 1200;
/// The validity of certificates whose policy names none.
pub(super) const DEFAULT_VALIDITY_MONTHS: u32 = 12;
/// The certificates of a vault are valid from ten minutes before their creation.
const BACKDATING: SignedDuration = SignedDuration::from_mins(10);

/// The object identifier of user principal names among the alternative names.
const USER_PRINCIPAL_NAME: [u64; 10] = [1, 3, 6, 1, 4, 1, 311, 20, 2, 3];

/// The key usages of policies, in the order of their bits (RFC 5280, 4.2.1.3).
const KEY_USAGES: [(&str, KeyUsagePurpose); 9] = [
    ("digitalSignature", KeyUsagePurpose::DigitalSignature),
    ("nonRepudiation", KeyUsagePurpose::ContentCommitment),
    ("keyEncipherment", KeyUsagePurpose::KeyEncipherment),
    ("dataEncipherment", KeyUsagePurpose::DataEncipherment),
    ("keyAgreement", KeyUsagePurpose::KeyAgreement),
    ("keyCertSign", KeyUsagePurpose::KeyCertSign),
    ("cRLSign", KeyUsagePurpose::CrlSign),
    ("encipherOnly", KeyUsagePurpose::EncipherOnly),
    ("decipherOnly", KeyUsagePurpose::DecipherOnly),
];

/// A self-signed certificate or a certificate signing request could not be created.
#[derive(Debug, thiserror::Error)]
pub(super) enum IssueCertificateError {
    #[error(transparent)]
    Key(#[from] AsymmetricKeyError),
    #[error("the certificate could not be created: {0}")]
    Certificate(#[from] rcgen::Error),
    /// The policy was checked when it was stored, so this is a defect.
    #[error("the policy of the certificate is not valid: {0}")]
    Policy(String),
}

/// Returns the start and the end of the validity of a certificate that is created at `time`.
pub(super) fn validity_from(policy: &CertificatePolicy, time: Timestamp) -> (Timestamp, Timestamp) {
    let months = policy.x509.validity_months.unwrap_or(DEFAULT_VALIDITY_MONTHS);
    let whole = Timestamp::from_second(time.as_second()).unwrap_or(time);
    let until = whole
        .to_zoned(TimeZone::UTC)
        .checked_add(Span::new().months(i64::from(months)))
        .map_or(Timestamp::MAX, |until| until.timestamp());
    (whole.checked_sub(BACKDATING).unwrap_or(whole), until)
}

/// Creates a self-signed certificate.
pub(super) fn issue_self_signed(
    policy: &CertificatePolicy,
    key: &AsymmetricKey,
    serial: Uuid,
    time: Timestamp,
) -> Result<DerCertificate, IssueCertificateError> {
    let mut params = certificate_params(policy).map_err(IssueCertificateError::Policy)?;
    let (from, until) = validity_from(policy, time);
    set_validity(&mut params, from, until);
    params.serial_number = Some(SerialNumber::from_slice(serial.as_bytes()));
    params.use_authority_key_identifier_extension = true;
    let certificate = params.self_signed(&CertificateSigner::new(key.clone())?)?;
    DerCertificate::parse(certificate.der())
        .ok_or_else(|| IssueCertificateError::Policy("it cannot be parsed".to_owned()))
}

/// Creates a certificate request (PKCS#10) in DER.
pub(super) fn request_certificate(
    policy: &CertificatePolicy,
    key: &AsymmetricKey,
) -> Result<Vec<u8>, IssueCertificateError> {
    let params = certificate_params(policy).map_err(IssueCertificateError::Policy)?;
    let request = params.serialize_request(&CertificateSigner::new(key.clone())?)?;
    Ok(request.der().to_vec())
}

/// Returns the fields of the certificates of a policy. The error text names the invalid field.
pub(super) fn certificate_params(policy: &CertificatePolicy) -> Result<CertificateParams, String> {
    if let lanyard_emulator_state::keys::AsymmetricKeyType::Ec(curve) = policy.key.key_type
        && curve == lanyard_emulator_state::keys::EllipticCurve::P256K
    {
        return Err(AsymmetricKeyError::UnsupportedCertificateCurve(curve.name()).to_string());
    }
    let mut params = CertificateParams::default();
    params.distinguished_name = parse_name(&policy.x509.subject)?;
    params.subject_alt_names = match &policy.x509.sans {
        Some(names) => alternative_names(names)?,
        None => Vec::new(),
    };
    params.key_usages = policy
        .x509
        .key_usage
        .iter()
        .flatten()
        .map(|name| key_usage(name))
        .collect::<Result<_, _>>()?;
    params.extended_key_usages = policy
        .x509
        .ekus
        .iter()
        .flatten()
        .map(|text| {
            parse_oid(text)
                .map(ExtendedKeyUsagePurpose::Other)
                .ok_or_else(|| format!("`ekus` `{text}` is not an object identifier"))
        })
        .collect::<Result<_, _>>()?;
    params.is_ca = IsCa::ExplicitNoCa;
    Ok(params)
}

fn key_usage(name: &str) -> Result<KeyUsagePurpose, String> {
    KEY_USAGES
        .into_iter()
        .find_map(|(known, usage)| known.eq_ignore_ascii_case(name).then_some(usage))
        .ok_or_else(|| format!("`key_usage` `{name}` is not known"))
}

fn alternative_names(names: &AlternativeNames) -> Result<Vec<SanType>, String> {
    let ascii = |text: &String| {
        Ia5String::try_from(text.as_str())
            .map_err(|error| format!("the alternative name `{text}` is not valid: {error}"))
    };
    let mut all = Vec::new();
    for text in names.dns_names.iter().flatten() {
        all.push(SanType::DnsName(ascii(text)?));
    }
    for text in names.emails.iter().flatten() {
        all.push(SanType::Rfc822Name(ascii(text)?));
    }
    for text in names.upns.iter().flatten() {
        let value = OtherNameValue::Utf8String(text.clone());
        all.push(SanType::OtherName((USER_PRINCIPAL_NAME.to_vec(), value)));
    }
    for text in names.uris.iter().flatten() {
        all.push(SanType::URI(ascii(text)?));
    }
    for text in names.ip_addresses.iter().flatten() {
        let address: IpAddr =
            text.parse().map_err(|error| format!("the IP address `{text}`: {error}"))?;
        all.push(SanType::IpAddress(address));
    }
    Ok(all)
}

/// Returns the fields of an imported certificate in the form of a certificate policy.
pub(super) fn x509_properties(certificate: &X509Certificate<'_>) -> X509Properties {
    let validity = certificate.validity();
    let days = (validity.not_after.timestamp() - validity.not_before.timestamp()) / (24 * 60 * 60);
    let months = (days * 12 + 182) / 365;
    let usage = certificate.key_usage().ok().flatten().map(|extension| {
        let flags = extension.value.flags;
        KEY_USAGES
            .iter()
            .enumerate()
            .filter(|(bit, _)| flags & (1 << bit) != 0)
            .map(|(_, (name, _))| (*name).to_owned())
            .collect()
    });
    X509Properties {
        subject: format_name(certificate.subject()),
        sans: imported_alternative_names(certificate),
        ekus: imported_extended_usages(certificate),
        key_usage: usage,
        validity_months: u32::try_from(months).ok().map(|it| it.clamp(1, MAX_VALIDITY_MONTHS)),
    }
}

fn imported_alternative_names(certificate: &X509Certificate<'_>) -> Option<AlternativeNames> {
    let extension = certificate.subject_alternative_name().ok()??;
    let mut names = AlternativeNames::default();
    let add = |list: &mut Option<Vec<String>>, text: String| {
        list.get_or_insert_default().push(text);
    };
    for name in &extension.value.general_names {
        match name {
            GeneralName::DNSName(text) => add(&mut names.dns_names, (*text).to_owned()),
            GeneralName::RFC822Name(text) => add(&mut names.emails, (*text).to_owned()),
            GeneralName::URI(text) => add(&mut names.uris, (*text).to_owned()),
            GeneralName::IPAddress(octets) => {
                let address = <[u8; 4]>::try_from(*octets)
                    .map(IpAddr::from)
                    .or_else(|_| <[u8; 16]>::try_from(*octets).map(IpAddr::from));
                if let Ok(address) = address {
                    add(&mut names.ip_addresses, address.to_string());
                }
            }
            _ => {}
        }
    }
    (!names.is_empty()).then_some(names)
}

fn imported_extended_usages(certificate: &X509Certificate<'_>) -> Option<Vec<String>> {
    let usage = certificate.extended_key_usage().ok()??.value;
    let known = [
        (usage.any, "2.5.29.37.0"),
        (usage.server_auth, "1.3.6.1.5.5.7.3.1"),
        (usage.client_auth, "1.3.6.1.5.5.7.3.2"),
        (usage.code_signing, "1.3.6.1.5.5.7.3.3"),
        (usage.email_protection, "1.3.6.1.5.5.7.3.4"),
        (usage.time_stamping, "1.3.6.1.5.5.7.3.8"),
        (usage.ocsp_signing, "1.3.6.1.5.5.7.3.9"),
    ];
    let mut oids: Vec<_> =
        known.into_iter().filter(|(is_set, _)| *is_set).map(|(_, oid)| oid.to_owned()).collect();
    oids.extend(usage.other.iter().map(x509_parser::oid_registry::Oid::to_id_string));
    Some(oids)
}
