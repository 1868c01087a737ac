//! What every operation of a kind may be refused with, described once for all of them.
//!
//! A handler describes what is special about it; what the extractors, the limits and the database
//! add is the same wherever they stand.

use axum::http::StatusCode;
use utoipa::openapi::path::{Operation, ParameterIn, PathItem};
use utoipa::openapi::{
    Components, ContentBuilder, HeaderBuilder, ObjectBuilder, OpenApi, Ref, RefOr, Response,
    ResponseBuilder, Type,
};

/// When an operation may be refused so.
type Applies = fn(&Operation) -> bool;

/// Status, name, description, and which operations it is for.
const REFUSALS: [(StatusCode, &str, &str, Applies); 11] = [
    (
        StatusCode::BAD_REQUEST,
        "BadRequest",
        "The query, a header or the body cannot be understood at all",
        can_be_misunderstood,
    ),
    (
        StatusCode::UNAUTHORIZED,
        "Unauthorized",
        "Credentials are missing or wrong",
        is_secured,
    ),
    (
        StatusCode::FORBIDDEN,
        "Forbidden",
        "The token may not do this",
        is_secured,
    ),
    (
        StatusCode::NOT_FOUND,
        "NotFound",
        "There is no such thing, or the token may not know of it",
        has_path,
    ),
    (
        StatusCode::REQUEST_TIMEOUT,
        "Timeout",
        "The body came too slowly",
        has_body,
    ),
    (
        StatusCode::PAYLOAD_TOO_LARGE,
        "TooLarge",
        "The body is too large",
        has_body,
    ),
    (
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "UnsupportedMediaType",
        "Another content type is wanted",
        has_body,
    ),
    (
        StatusCode::UNPROCESSABLE_ENTITY,
        "Invalid",
        "Something does not make sense",
        has_body,
    ),
    (
        StatusCode::TOO_MANY_REQUESTS,
        "RateLimited",
        "The token sends too many requests",
        is_secured,
    ),
    (
        StatusCode::INTERNAL_SERVER_ERROR,
        "Internal",
        "Something is wrong with the server",
        is_secured,
    ),
    (
        StatusCode::SERVICE_UNAVAILABLE,
        "Unavailable",
        "Send it again",
        is_secured,
    ),
];

fn is_secured(operation: &Operation) -> bool {
    // What is open says so itself; all else needs what the whole interface needs.
    operation.security.is_none()
}

fn has_body(operation: &Operation) -> bool {
    operation.request_body.is_some()
}

fn has_parameter(operation: &Operation, place: &ParameterIn) -> bool {
    let parameters = operation.parameters.iter().flatten();
    parameters.into_iter().any(|parameter| match parameter {
        RefOr::T(parameter) => parameter.parameter_in == *place,
        RefOr::Ref(_) => false,
    })
}

fn can_be_misunderstood(operation: &Operation) -> bool {
    let has = |place| has_parameter(operation, &place);
    has(ParameterIn::Query) || has(ParameterIn::Header) || has_body(operation)
}

fn has_path(operation: &Operation) -> bool {
    has_parameter(operation, &ParameterIn::Path)
}

/// Describes in `document` what its operations may be refused with, besides what they say
/// themselves.
pub(super) fn describe(document: &mut OpenApi) {
    let components = document.components.get_or_insert_with(Components::new);
    for (status, name, description, _) in REFUSALS {
        let response = response(status, description);
        components
            .responses
            .insert(name.to_owned(), RefOr::T(response));
    }
    for item in document.paths.paths.values_mut() {
        for operation in operations(item) {
            for (status, name, _, applies) in REFUSALS {
                if applies(operation) {
                    let refusal = RefOr::Ref(Ref::from_response_name(name));
                    let responses = &mut operation.responses.responses;
                    responses
                        .entry(status.as_str().to_owned())
                        .or_insert(refusal);
                }
            }
        }
    }
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    let PathItem {
        get,
        put,
        post,
        delete,
        patch,
        ..
    } = item;
    [get, put, post, delete, patch].into_iter().flatten()
}

fn response(status: StatusCode, description: &str) -> Response {
    let problem = Ref::from_schema_name("Problem");
    let content = ContentBuilder::new().schema(Some(problem)).build();
    let header = |kind: Type, description: &str| {
        let schema = ObjectBuilder::new().schema_type(kind);
        let header = HeaderBuilder::new().schema(Some(schema));
        header.description(Some(description)).build()
    };
    let response = ResponseBuilder::new()
        .description(description)
        .content("application/problem+json", content);
    let response = match status {
        StatusCode::UNAUTHORIZED => {
            response.header("www-authenticate", header(Type::String, "What to send"))
        }
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => response.header(
            "retry-after",
            header(Type::Integer, "How long to wait, in seconds"),
        ),
        _ => response,
    };
    response.build()
}
