"""The queries in Flink SQL. This module has no imports: Flink runs in an environment of its own.

Rows come from CSV files, because the package of Flink on PyPI cannot read Parquet. Times are in UTC.
"""

TABLES = {
    "person": """
        id BIGINT, name STRING, email_address STRING, credit_card STRING, city STRING, state STRING,
        date_time TIMESTAMP(3), extra STRING
    """,
    "auction": """
        id BIGINT, item_name STRING, description STRING, initial_bid BIGINT, reserve BIGINT,
        date_time TIMESTAMP(3), expires TIMESTAMP(3), seller BIGINT, category BIGINT, extra STRING
    """,
    "bid": """
        auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING,
        date_time TIMESTAMP(3), extra STRING
    """,
}

_IN_TIME = """
        SELECT a.*, b.auction, b.bidder, b.price, b.date_time AS bid_date_time, b.extra AS bid_extra
        FROM auction a JOIN bid b ON a.id = b.auction
        WHERE b.date_time BETWEEN a.date_time AND a.expires"""

_RANKS = (
    ("total", "TRUE"),
    ("rank1", "price < 10000"),
    ("rank2", "price >= 10000 AND price < 1000000"),
    ("rank3", "price >= 1000000"),
)


def _ranked(what: str, name: str) -> str:
    return ",\n    ".join(
        f"COUNT({what}) FILTER (WHERE {condition}) AS {rank}_{name}" for rank, condition in _RANKS
    )


_COUNTS = ",\n    ".join(
    (_ranked("*", "bids"), _ranked("DISTINCT bidder", "bidders"), _ranked("DISTINCT auction", "auctions"))
)
_DAY = "DATE_FORMAT(date_time, 'yyyy-MM-dd')"

QUERIES = {
    "q0": """
SELECT auction, bidder, price, date_time, extra FROM bid
""",
    "q1": """
SELECT auction, bidder, 0.908 * price AS price, date_time, extra FROM bid
""",
    "q2": """
SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0
""",
    "q3": """
SELECT p.name, p.city, p.state, a.id
FROM auction a JOIN person p ON a.seller = p.id
WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')
""",
    "q4": """
SELECT category, AVG(best) AS final
FROM (
    SELECT id, category, MAX(price) AS best
    FROM auction JOIN bid ON id = auction
    WHERE bid.date_time BETWEEN auction.date_time AND expires
    GROUP BY id, category
)
GROUP BY category
""",
    "q5": """
WITH counts AS (
    SELECT auction, COUNT(*) AS num, window_start, window_end
    FROM HOP(TABLE bid, DESCRIPTOR(date_time), INTERVAL '2' SECOND, INTERVAL '10' SECOND)
    GROUP BY auction, window_start, window_end
),
most AS (
    SELECT MAX(num) AS num, window_start, window_end FROM counts GROUP BY window_start, window_end
)
SELECT c.auction, c.num, c.window_start AS starttime
FROM counts c JOIN most m
ON c.window_start = m.window_start AND c.window_end = m.window_end AND c.num >= m.num
""",
    "q7": """
WITH best AS (
    SELECT MAX(price) AS price, window_end
    FROM TUMBLE(TABLE bid, DESCRIPTOR(date_time), INTERVAL '10' SECOND)
    GROUP BY window_start, window_end
)
SELECT b.auction, b.bidder, b.price, b.date_time, b.extra
FROM bid b JOIN best ON b.price = best.price
WHERE b.date_time BETWEEN best.window_end - INTERVAL '10' SECOND AND best.window_end
""",
    "q8": """
WITH people AS (
    SELECT id, name, window_start, window_end
    FROM TUMBLE(TABLE person, DESCRIPTOR(date_time), INTERVAL '10' SECOND)
    GROUP BY id, name, window_start, window_end
),
sellers AS (
    SELECT seller, window_start, window_end
    FROM TUMBLE(TABLE auction, DESCRIPTOR(date_time), INTERVAL '10' SECOND)
    GROUP BY seller, window_start, window_end
)
SELECT p.id, p.name, p.window_start AS starttime
FROM people p JOIN sellers s
ON p.id = s.seller AND p.window_start = s.window_start AND p.window_end = s.window_end
""",
    "q9": f"""
SELECT id, item_name, description, initial_bid, reserve, date_time, expires, seller, category, extra,
    auction, bidder, price, bid_date_time, bid_extra
FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY id ORDER BY price DESC, bid_date_time ASC) AS place
    FROM ({_IN_TIME}
    )
)
WHERE place = 1
""",
    "q11": """
SELECT bidder, COUNT(*) AS bid_count, window_start AS starttime, window_end AS endtime
FROM SESSION(TABLE bid PARTITION BY bidder, DESCRIPTOR(date_time), INTERVAL '10' SECOND)
GROUP BY bidder, window_start, window_end
""",
    "q12": """
SELECT bidder, COUNT(*) AS bid_count, window_start AS starttime, window_end AS endtime
FROM TUMBLE(TABLE arriving_bid, DESCRIPTOR(arrived), INTERVAL '10' SECOND)
GROUP BY bidder, window_start, window_end
""",
    "q13": """
SELECT auction, bidder, price, date_time, `value`
FROM bid JOIN side_input ON MOD(auction, 10000) = `key`
""",
    "q14": """
SELECT auction, bidder, 0.908 * price AS price,
    CASE
        WHEN HOUR(date_time) BETWEEN 8 AND 18 THEN 'dayTime'
        WHEN HOUR(date_time) <= 6 OR HOUR(date_time) >= 20 THEN 'nightTime'
        ELSE 'otherTime'
    END AS bid_time_type,
    date_time, extra, CHAR_LENGTH(extra) - CHAR_LENGTH(REPLACE(extra, 'c', '')) AS c_counts
FROM bid
WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000
""",
    "q15": f"""
SELECT {_DAY} AS `day`,
    {_COUNTS}
FROM bid
GROUP BY {_DAY}
""",
    "q16": f"""
SELECT channel, {_DAY} AS `day`, MAX(DATE_FORMAT(date_time, 'HH:mm')) AS `minute`,
    {_COUNTS}
FROM bid
GROUP BY channel, {_DAY}
""",
    "q17": f"""
SELECT auction, {_DAY} AS `day`,
    {_ranked("*", "bids")},
    MIN(price) AS min_price, MAX(price) AS max_price, AVG(price) AS avg_price, SUM(price) AS sum_price
FROM bid
GROUP BY auction, {_DAY}
""",
    "q18": """
SELECT auction, bidder, price, channel, url, date_time, extra
FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY date_time DESC) AS place FROM bid
)
WHERE place = 1
""",
    "q19": """
SELECT auction, bidder, price, channel, url, date_time, extra, rank_number
FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC) AS rank_number FROM bid
)
WHERE rank_number <= 10
""",
    "q20": """
SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.date_time AS bid_date_time, b.extra AS bid_extra,
    a.item_name, a.description, a.initial_bid, a.reserve, a.date_time AS auction_date_time,
    a.expires, a.seller, a.category, a.extra AS auction_extra
FROM bid b JOIN auction a ON b.auction = a.id
WHERE a.category = 10
""",
    "q21": """
SELECT auction, bidder, price, channel, channel_id
FROM (
    SELECT *, CASE LOWER(channel)
        WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3'
        ELSE REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2)
    END AS channel_id
    FROM bid
)
WHERE channel_id IS NOT NULL
""",
    "q22": """
SELECT auction, bidder, price, channel,
    SPLIT_INDEX(url, '/', 3) AS dir1, SPLIT_INDEX(url, '/', 4) AS dir2, SPLIT_INDEX(url, '/', 5) AS dir3
FROM bid
""",
}
