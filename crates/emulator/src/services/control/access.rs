//! Why a principal may or may not do something: the decision with the assignment behind it.

use http::StatusCode;
use uuid::Uuid;

use super::refused;
use crate::authorization::{AccessRequest, AccessScope, Plane};
use crate::call::Call;
use crate::request::Reply;

/// `GET access?principal=…&action=…&scope=…[&plane=data]`: `principal` is an object id or a
/// client id.
pub(super) fn explain(call: &mut Call<'_>) -> Result<Reply, Reply> {
    let invalid = |message: String| refused(StatusCode::BAD_REQUEST, "AccessInvalid", &message);
    let field = |name: &str| {
        call.request.query(name).ok_or_else(|| invalid(format!("The query has no `{name}`.")))
    };
    let principal: Uuid = field("principal")?
        .parse()
        .map_err(|error| invalid(format!("`principal` is not a GUID: {error}.")))?;
    let action = field("action")?;
    let scope: AccessScope =
        field("scope")?.parse().map_err(|error| invalid(format!("`scope`: {error}.")))?;
    let plane = match call.request.query("plane") {
        None | Some("control") => Plane::Control,
        Some("data") => Plane::Data,
        Some(other) => {
            return Err(invalid(format!("`plane={other}` is neither `control` nor `data`.")));
        }
    };
    let world = call.world();
    let principal_id =
        world.directory.by_client(principal.into()).map_or(principal, |known| known.object_id);
    let request = AccessRequest { principal_id, plane, action, scope: &scope };
    Ok(Reply::json(StatusCode::OK, &world.authorization.explain(request)))
}
