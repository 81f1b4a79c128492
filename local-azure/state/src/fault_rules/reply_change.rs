//! Changes of a service's own reply: defects of issued tokens, and lists without an end.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::azure_state::AzureState;
use crate::jose;
use crate::jose::UnverifiedToken;
use crate::request::{ServiceReply, ServiceRequest};

/// A change of the reply that the service wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyChange {
    TokenDefect(TokenDefect),
    NextLinkLoop,
}

/// Why a service does not accept an issued access token. The signature matches the changed token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TokenDefect {
    /// The token is for another resource.
    Audience,
    /// The token names a key that the tenant does not publish.
    KeyId,
    /// The token has expired. The reply states the regular lifetime.
    Expired,
    /// The token is not valid for another hour.
    NotYetValid,
}

/// One hour, in seconds.
const HOUR: i64 = 3_600;

impl ReplyChange {
    /// Changes a reply. Replies without a token or a list stay the same.
    pub fn apply(
        self,
        reply: ServiceReply,
        request: &ServiceRequest,
        azure: &AzureState,
    ) -> ServiceReply {
        let Ok(mut body) = serde_json::from_slice::<Value>(&reply.body) else { return reply };
        let changed = match self {
            Self::TokenDefect(defect) => replace_token(&mut body, defect, azure),
            Self::NextLinkLoop => loop_next_link(&mut body, request),
        };
        match changed {
            Some(()) => ServiceReply { body: body.to_string().into(), ..reply },
            None => reply,
        }
    }
}

/// Replaces the access token of a reply; `None` if the reply has none.
fn replace_token(body: &mut Value, defect: TokenDefect, azure: &AzureState) -> Option<()> {
    let token = UnverifiedToken::parse(body.get("access_token")?.as_str()?)?;
    let tenant = azure.directory.tenant(token.text_claim("tid")?)?;
    let signing = tenant.signing_keys.current();
    let mut claims = token.claims.clone();
    let mut key_id = Cow::Borrowed(signing.key_id.as_str());
    match defect {
        TokenDefect::Audience => {
            claims.insert("aud".to_owned(), json!("https://resource.invalid"));
        }
        TokenDefect::KeyId => key_id = Cow::Owned(key_id.chars().rev().collect()),
        TokenDefect::Expired => {
            let lifetime = claims.get("exp")?.as_i64()? - claims.get("nbf")?.as_i64()?;
            shift_times(&mut claims, &["iat", "nbf", "exp"], -lifetime - HOUR);
        }
        TokenDefect::NotYetValid => shift_times(&mut claims, &["nbf", "exp"], HOUR),
    }
    let header = json!({ "typ": "JWT", "alg": "RS256", "x5t": key_id, "kid": key_id });
    let signed = jose::sign_rs256_token(&header, &claims, &signing.key).ok()?;
    *body.get_mut("access_token")? = json!(signed);
    Some(())
}

fn shift_times(claims: &mut Map<String, Value>, names: &[&str], seconds: i64) {
    for name in names {
        if let Some(time) = claims.get(*name).and_then(Value::as_i64) {
            claims.insert((*name).to_owned(), json!(time.saturating_add(seconds)));
        }
    }
}

/// Sets the link to the next page to the URL of the request; `None` if the reply is no list.
fn loop_next_link(body: &mut Value, request: &ServiceRequest) -> Option<()> {
    let list = body.as_object_mut().filter(|list| list.contains_key("value"))?;
    let is_odata = list.contains_key("@odata.context");
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(&request.query);
    let url = format!("{}{}?{}", request.origin(), request.path, query.finish());
    let name = if is_odata { "@odata.nextLink" } else { "nextLink" };
    list.insert(name.to_owned(), json!(url));
    Some(())
}
