//! Who gets a name, and whose names are the same.

use serde_json::json;

use super::{key, send, view, visitor};
use crate::harness::cluster::Cluster;
use crate::harness::{Api, Database, Server, start};
use crate::spooled::{Folder, drained};

#[tokio::test]
async fn a_reader_has_one_name_in_all_processes_and_no_other_reader_has_it() {
    let (database, one) = start().await;
    let other = Server::start(&database).await;
    let (one, other) = (one.api(), other.api());
    one.book("b", json!({})).await;
    one.book("c", json!({})).await;
    let (b, c) = (key(&one, "b").await, key(&one, "c").await);
    let of = async |api: &Api, book: &str, address: &str, agent: Option<&str>, page: &str| {
        let key = if book == "b" { &b } else { &c };
        let mut request = view(api, book, key, address);
        if let Some(agent) = agent {
            request = api
                .http
                .post(format!("{}/v1/books/{book}/clicks?key={key}", api.url));
            request = request
                .header("content-type", "text/plain")
                .header("user-agent", agent);
            request = request.header("x-forwarded-for", address);
        }
        send(request, &json!({"page": page}), 200).await;
        visitor(&database, page).await.expect("a name")
    };
    let name = of(&one, "b", "192.0.2.1", None, "/1").await;
    assert_eq!(name.len(), 22);
    assert_eq!(of(&other, "b", "192.0.2.1", None, "/2").await, name);
    assert_eq!(
        of(&one, "b", "198.51.100.1, 192.0.2.1", None, "/3").await,
        name
    );
    let agent = Some("Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:141.0) Firefox/141.0");
    let names = [
        name,
        of(&one, "b", "192.0.2.2", None, "/4").await,
        of(&one, "b", "2001:db8::1", None, "/5").await,
        of(&one, "b", "192.0.2.1", agent, "/6").await,
        of(&one, "c", "192.0.2.1", None, "/7").await,
    ];
    let distinct: std::collections::BTreeSet<&String> = names.iter().collect();
    assert_eq!(distinct.len(), names.len(), "{names:?}");
    assert_eq!(
        database.number("SELECT count(*) FROM visitor_salts").await,
        1
    );
}

#[tokio::test]
async fn a_name_is_made_only_for_readers_who_have_none_and_let_themselves_be_counted() {
    let (database, server) = start().await;
    let api = server.api();
    api.book("b", json!({})).await;
    let key = key(&api, "b").await;
    let view = || view(&api, "b", &key, "192.0.2.1");
    send(view(), &json!({"page": "/named", "visitor": "ann"}), 200).await;
    assert_eq!(visitor(&database, "/named").await.as_deref(), Some("ann"));
    // A back end knows its readers, or does not want to.
    api.clicks("b", json!({"page": "/back-end"})).await;
    assert_eq!(visitor(&database, "/back-end").await, None);
    for header in ["dnt", "sec-gpc"] {
        let page = format!("/{header}");
        send(view().header(header, "1"), &json!({"page": page}), 200).await;
        assert_eq!(visitor(&database, &page).await, None, "{header}");
        let page = format!("/{header}-0");
        send(view().header(header, "0"), &json!({"page": page}), 200).await;
        assert!(visitor(&database, &page).await.is_some(), "{header}");
    }
    let settings = json!({"settings": {"respect_gpc": false}});
    let book = api.patch("/v1/books/b", &settings).await.expect(200);
    assert_eq!(book["settings"]["respect_gpc"], false);
    send(
        view().header("sec-gpc", "1"),
        &json!({"page": "/all-the-same"}),
        200,
    )
    .await;
    assert!(visitor(&database, "/all-the-same").await.is_some());
}

#[tokio::test]
async fn while_postgres_is_away_clicks_have_the_name_that_they_can_have() {
    let cluster = Cluster::start();
    let database = Database::create_on(cluster.socket_url()).await;
    let folder = Folder::new();
    for (run, salt_is_known) in [false, true].into_iter().enumerate() {
        let server = Server::start_with_spool(&database, folder.path(), &[]).await;
        let api = server.api();
        api.put("/v1/books/b", &json!({})).await;
        let key = key(&api, "b").await;
        // The token and the book are known from here on.
        api.with_token(&key)
            .clicks("b", json!({"page": "/before"}))
            .await;
        let view = || view(&api, "b", &key, "192.0.2.1");
        let known = format!("/known-{run}");
        if salt_is_known {
            send(view(), &json!({"page": known}), 200).await;
        }
        cluster.stop("fast");
        let page = format!("/spooled-{run}");
        send(view(), &json!({"page": page}), 202).await;
        cluster.resume();
        drained(&api).await;
        let name = visitor(&database, &page).await;
        assert_eq!(name.is_some(), salt_is_known);
        if salt_is_known {
            assert_eq!(
                name,
                visitor(&database, &known).await,
                "fixed at its receipt"
            );
        }
        assert!(server.terminate().await.success());
    }
}
