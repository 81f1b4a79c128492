//! Checksums of uploaded content.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use crc::{CRC_64_NVME, Crc, Table};
use lanyard_emulator_state::request::{ServiceReply, ServiceRequest};
use md5::{Digest, Md5};

use super::error::BlobErrorCode;

/// Azure Storage uses the CRC-64 of NVM Express.
const CRC64: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&CRC_64_NVME);

/// The MD5 in base64, as in `Content-MD5`.
pub(super) fn md5_base64(content: &[u8]) -> String {
    STANDARD.encode(Md5::digest(content))
}

/// The CRC-64 in base64 of its little-endian bytes, as in `x-ms-content-crc64`.
pub(super) fn crc64_base64(content: &[u8]) -> String {
    STANDARD.encode(CRC64.checksum(content).to_le_bytes())
}

/// A checksum of the body that the client sent, and that the reply repeats.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct VerifiedChecksum {
    /// The MD5 in base64.
    pub(super) md5: Option<String>,
    /// The CRC-64 in base64.
    pub(super) crc64: Option<String>,
}

/// Verifies the checksums of the body in the headers of a request.
pub(super) fn verify_body_checksums(
    request: &ServiceRequest,
) -> Result<VerifiedChecksum, ServiceReply> {
    if request.header("x-ms-structured-body").is_some() {
        return Err(BlobErrorCode::feature_not_supported("x-ms-structured-body"));
    }
    let md5 = match request.header("content-md5") {
        None => None,
        Some(sent) => {
            check_md5_form(sent)?;
            let computed = md5_base64(&request.body);
            if computed != sent {
                return Err(BlobErrorCode::MD5_MISMATCH.to_reply());
            }
            Some(computed)
        }
    };
    let crc64 = match request.header("x-ms-content-crc64") {
        None => None,
        Some(sent) => {
            let computed = crc64_base64(&request.body);
            if computed != sent {
                return Err(BlobErrorCode::CRC64_MISMATCH.to_reply());
            }
            Some(computed)
        }
    };
    Ok(VerifiedChecksum { md5, crc64 })
}

/// Checks that a text is an MD5 in base64.
pub(super) fn check_md5_form(text: &str) -> Result<(), BlobErrorCode> {
    match STANDARD.decode(text) {
        Ok(bytes) if bytes.len() == 16 => Ok(()),
        _ => Err(BlobErrorCode::INVALID_MD5),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_equal_known_values() {
        assert_eq!(md5_base64(b""), "1B2M2Y8AsgTpgAmY7PhCfg==");
        assert_eq!(md5_base64(b"hello"), "XUFAKrxLKna5cZ2REBfFkg==");
        // The check value of CRC-64/NVME.
        assert_eq!(
            STANDARD.decode(crc64_base64(b"123456789")).unwrap(),
            0xae8b_1486_0a79_9888_u64.to_le_bytes()
        );
    }
}
