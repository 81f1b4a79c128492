//! The entra service.

use crate::operations::Operation;

/// What this service can do.
pub(crate) const OPERATIONS: &[&[Operation]] = &[];

pub(crate) fn injected_error(
    code: u32,
    now: jiff::Timestamp,
    ids: &mut crate::call::Ids,
) -> crate::request::Reply {
    let _ = (code, now, ids);
    crate::request::Reply::empty(http::StatusCode::BAD_REQUEST)
}
