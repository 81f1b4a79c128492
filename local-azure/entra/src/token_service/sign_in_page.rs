//! The HTML pages of sign-ins.

use http::StatusCode;
use lanyard_emulator_state::directory::User;
use lanyard_emulator_state::request::ServiceReply;

use super::error::TokenServiceError;

const STYLE: &str = "body{font-family:system-ui,sans-serif;max-width:32rem;margin:4rem auto;\
padding:0 1rem;color-scheme:light dark}button,input{font:inherit;padding:.5rem .75rem;\
margin:.25rem 0}button{cursor:pointer}form button{display:block;width:100%;text-align:left}";

/// Escapes text for HTML content and attributes in double quotes.
fn escape_html(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut escaped, character| {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
        escaped
    })
}

fn html_reply(status: StatusCode, title: &str, body: &str) -> ServiceReply {
    let title = escape_html(title);
    let page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\">\
         <title>{title}</title><style>{STYLE}</style></head>\n\
         <body>\n<h1>{title}</h1>\n{body}\n\
         <p><small>This is the local Azure of lanyard, not Microsoft.</small></p>\n\
         </body>\n</html>\n"
    );
    ServiceReply::empty(status).with_body("text/html; charset=utf-8", page)
}

fn hidden_field(name: &str, value: &str) -> String {
    let (name, value) = (escape_html(name), escape_html(value));
    format!("<input type=\"hidden\" name=\"{name}\" value=\"{value}\">\n")
}

/// One button for each user, which submits the user's object id.
fn user_buttons<'a>(users: impl Iterator<Item = &'a User>) -> String {
    let button = |user: &User| {
        let (name, upn) = (escape_html(&user.display_name), escape_html(&user.principal_name));
        format!(
            "<button name=\"user\" value=\"{}\">{name}<br><small>{upn}</small></button>\n",
            user.object_id
        )
    };
    let buttons: String = users.map(button).collect();
    if buttons.is_empty() {
        return "<p>No user of this directory can sign in.</p>\n".to_owned();
    }
    buttons
}

/// The page of the authorization endpoint, on which a person selects the user who signs in. It posts to its
/// own URL, so that the query remains the authorization request.
pub(super) fn authorization_page<'a>(
    client: &str,
    users: impl Iterator<Item = &'a User>,
) -> ServiceReply {
    let (client, users) = (escape_html(client), user_buttons(users));
    let body = format!(
        "<p>Sign in to {client} as:</p>\n<form method=\"post\">\n{users}\
         <button name=\"decision\" value=\"decline\">Cancel</button>\n</form>"
    );
    html_reply(StatusCode::OK, "Sign in", &body)
}

/// The page of the device code flow, on which a person enters the code and selects a user.
pub(super) fn device_page<'a>(
    user_code: &str,
    users: impl Iterator<Item = &'a User>,
) -> ServiceReply {
    let (code, users) = (escape_html(user_code), user_buttons(users));
    let body = format!(
        "<p>Enter the code that the application shows, and select who signs in.</p>\n\
         <form method=\"post\">\n<label>Code <input name=\"user_code\" value=\"{code}\" required \
         autofocus autocomplete=\"off\"></label>\n{users}\
         <button name=\"decision\" value=\"decline\">Cancel the sign-in</button>\n</form>"
    );
    html_reply(StatusCode::OK, "Enter code", &body)
}

/// A page with one sentence.
pub(super) fn message_page(title: &str, message: &str) -> ServiceReply {
    html_reply(StatusCode::OK, title, &format!("<p>{}</p>", escape_html(message)))
}

/// The page of an error that must not be sent to the redirect URI of the request.
pub(super) fn error_page(error: &TokenServiceError) -> ServiceReply {
    let code = format!("AADSTS{}", error.code.number);
    let text = format!("<p>{code}: {}</p>", escape_html(&error.description));
    html_reply(StatusCode::BAD_REQUEST, "Sorry, but we’re having trouble signing you in.", &text)
        .with_rejection_reason(code)
}

/// A page that posts fields to a redirect URI, for the response mode `form_post`.
pub(super) fn form_post_page(redirect_uri: &str, fields: &[(&str, &str)]) -> ServiceReply {
    let hidden: String = fields.iter().map(|(name, value)| hidden_field(name, value)).collect();
    let target = escape_html(redirect_uri);
    let body = format!(
        "<form method=\"post\" action=\"{target}\">\n{hidden}\
         <button type=\"submit\">Continue</button>\n</form>\n\
         <script>document.forms[0].submit()</script>"
    );
    html_reply(StatusCode::OK, "Working…", &body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_clients_cannot_become_markup() {
        let hostile = "\"><script>alert('x')</script>&";
        for reply in [
            form_post_page(hostile, &[("state", hostile)]),
            device_page(hostile, std::iter::empty()),
            authorization_page(hostile, std::iter::empty()),
            message_page(hostile, hostile),
        ] {
            let text = String::from_utf8(reply.body.to_vec()).unwrap();
            assert!(!text.contains("<script>alert"), "{text}");
            assert!(!text.contains("value=\"\">"), "{text}");
        }
    }
}
