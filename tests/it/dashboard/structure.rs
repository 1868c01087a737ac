//! Chapters are read from what people have: lines, the `SUMMARY.md` of an mdBook, a sitemap.

use serde_json::{Value, json};

use crate::harness::browser::Browser;
use crate::harness::start;

/// With all that mdBook knows: a title, parts, chapters before and after the numbered ones, drafts,
/// nested entries, marks in titles, and links that name a page twice or another site.
const SUMMARY: &str = r"# The Tides

[Foreword](foreword.md)

# Watching

- [Where to stand](README.md)
    - [The *harbour*](harbour/README.md)
        * [`low` water](harbour/low.md#at-noon)
    - [A draft]()
- [Tools \[old\] & **new**](./tools/../tools/index.md 'of the trade')
	- [With spaces](<tools/a clock.md>)
<!-- - [Not yet](not-yet.md) -->
- [Only drafts below]()
    - [Later]()
- [Drafts, but for one]()
    - [Ebb](ebb.markdown?edition=2)

---

## Reckoning ##

1. [Again](foreword.md)
2. [The moon](https://example.org/moon.md)
3. [Tables](tables.html) (to be done)

[Thanks](thanks.md)
";

const SITEMAP: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:image="http://www.google.com/schemas/sitemap-image/1.1">
  <!-- <url><loc>https://tides.example/book/gone</loc></url> -->
  <url><loc>https://tides.example/book/</loc><lastmod>2026-01-01</lastmod></url>
  <url><loc> https://tides.example/book/foreword.html </loc></url>
  <url><loc>https://tides.example/book/guide/</loc></url>
  <url>
    <image:image><image:loc>https://tides.example/book/picture.png</image:loc></image:image>
    <loc>https://tides.example/book/guide/low-water/?a=1&amp;b=2</loc>
  </url>
  <url><loc><![CDATA[https://tides.example/book/guide/caf%C3%A9]]></loc></url>
  <url><loc>https://elsewhere.example/book/x</loc></url>
</urlset>"#;

struct Reader(Browser);

impl Reader {
    /// What a function of the module gives for these arguments.
    async fn call(&self, name: &str, arguments: Value) -> Value {
        let script = "const [name, given] = arguments;
            const module = await import('/assets/structure.js');
            return module[name](...given);";
        let value = self.0.run(script, json!([name, arguments])).await;
        assert!(value.get("error").is_none(), "{name}{arguments}: {value}");
        value
    }

    /// What is read from a text, with the chapters as lines.
    async fn read(&self, text: &str, each: &str) -> (Vec<String>, Value) {
        let mut reading = self.call("read", json!([text, each])).await;
        let chapters = reading["chapters"].take();
        let lines = self.call("toLines", json!([chapters])).await;
        // What is read so is read again from the lines that people see.
        let again = self.call("fromLines", json!([lines])).await;
        assert_eq!(again["problems"], json!([]));
        let plain = |chapters: &Value| {
            let chapters = chapters.as_array().unwrap().iter();
            let parts = |c: &Value| json!([c["title"], c["pages"], c["part"]]);
            chapters.map(parts).collect::<Vec<_>>()
        };
        assert_eq!(plain(&again["chapters"]), plain(&chapters), "{lines}");
        let lines = lines.as_str().unwrap().lines().map(str::to_owned);
        (lines.collect(), reading)
    }
}

#[tokio::test]
async fn chapters_are_read_from_what_people_have() {
    let (_database, server) = start().await;
    let reader = Reader(Browser::start().await);
    reader.0.visit(&server.url).await;

    let (lines, reading) = reader.read(SUMMARY, "folder").await;
    assert_eq!(reading["kind"], "summary");
    assert_eq!(reading["title"], "The Tides");
    let expected = [
        "Foreword: /foreword",
        "",
        "# Watching",
        "Where to stand: /, /harbour, /harbour/low",
        "Tools [old] & new: /tools, /tools/a%20clock",
        "Drafts, but for one: /ebb",
        "",
        "# Reckoning",
        "Tables: /tables.html",
        "Thanks: /thanks",
    ];
    assert_eq!(lines, expected);
    let notes = [
        "4 entries without a page, drafts, left out",
        "1 entry whose page stands further up already, left out",
        "1 entry of another site, left out",
    ];
    assert_eq!(reading["notes"], json!(notes));
    // The first page is that of the book, too, unless another is.
    let (lines, _) = reader.read("# Summary\n- [One](one.md)\n", "folder").await;
    assert_eq!(lines, ["One: /, /one"]);

    let (lines, reading) = reader.read(SITEMAP, "folder").await;
    let expected = [
        "Book: /book/",
        "Foreword: /book/foreword.html",
        "Guide: /book/guide/*",
    ];
    assert_eq!(lines, expected);
    assert_eq!(
        (&reading["origin"], &reading["base"]),
        (&json!("https://tides.example"), &json!("/book"))
    );
    assert_eq!(reading["notes"], json!(["1 page of other sites, left out"]));
    let (lines, _) = reader.read(SITEMAP, "page").await;
    let expected = [
        "Book: /book/",
        "Foreword: /book/foreword.html",
        "Guide: /book/guide/",
        "Low water: /book/guide/low-water/",
        "Café: /book/guide/caf%C3%A9",
    ];
    assert_eq!(lines, expected);
    let index =
        "<sitemapindex><sitemap><loc>https://tides.example/one.xml</loc></sitemap></sitemapindex>";
    let reading = reader.call("read", json!([index])).await;
    let words = reading["problems"][0]["words"].as_str().unwrap();
    assert!(words.contains("https://tides.example/one.xml"), "{words}");

    lines_as_they_are_typed(&reader).await;
    names_and_addresses(&reader).await;
}

async fn lines_as_they_are_typed(reader: &Reader) {
    let typed = "# Part one\n\n Ebb and flow : /ebb, /flow/*\r\n/ch01-low_water.html\n\
                 - Ten o'clock: a tide: https://tides.example/ten,/ten-2\nNothing here\nBad: /a, b\n";
    let reading = reader.call("fromLines", json!([typed])).await;
    assert_eq!(
        reading["chapters"],
        json!([
            {"title": "Ebb and flow", "pages": ["/ebb", "/flow/*"], "line": 3, "part": "Part one"},
            {"title": "Ch01 low water", "pages": ["/ch01-low_water.html"], "line": 4},
            {"title": "Ten o'clock: a tide", "pages": ["https://tides.example/ten", "/ten-2"], "line": 5},
        ])
    );
    assert_eq!(
        reading["problems"],
        json!([
            {"line": 6, "words": "“Nothing here” has no page. Write “Title: /page”."},
            {"line": 7, "words": "“b” is no page: a page begins with a slash."},
        ])
    );
}

async fn names_and_addresses(reader: &Reader) {
    for (title, slug) in [
        (
            "The Rust Programming Language",
            "the-rust-programming-language",
        ),
        ("  Ça, c'est déjà l'été! ", "ca-c-est-deja-l-ete"),
        ("Straße 5", "strasse-5"),
        ("潮汐", ""),
    ] {
        assert_eq!(reader.call("slugOf", json!([title])).await, slug, "{title}");
    }
    let chapters = json!([{"title": "Ebb", "pages": ["/a"], "line": 1}, {"title": "EBB!", "pages": ["/b"]},
                          {"title": "潮", "pages": ["/c"], "part": "P"}]);
    let with_ids = json!([{"id": "ebb", "title": "Ebb", "pages": ["/a"]},
                          {"id": "ebb-2", "title": "EBB!", "pages": ["/b"]},
                          {"id": "chapter-3", "title": "潮", "pages": ["/c"]}]);
    assert_eq!(reader.call("withIds", json!([chapters])).await, with_ids);
    for (address, origin, base) in [
        (
            "https://Tides.example:443/Book/index.html",
            "https://tides.example",
            "/Book",
        ),
        ("tides.example", "https://tides.example", ""),
        (
            "http://127.0.0.1:8080/v1.2/",
            "http://127.0.0.1:8080",
            "/v1.2",
        ),
    ] {
        let site = reader.call("siteOf", json!([address])).await;
        assert_eq!(site, json!({"origin": origin, "base": base}), "{address}");
    }
    for none in ["", "/book", "ftp://tides.example", "two words", "https://"] {
        let site = reader.call("siteOf", json!([none])).await;
        assert_eq!(site, Value::Null, "{none}");
    }
}
