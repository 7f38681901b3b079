-- psql postgres://foreshore@127.0.0.1:6875/foreshore -f docker/sources/foreshore.sql
CREATE SECRET shop_password AS 'shop';
CREATE CONNECTION shop TO POSTGRES
    (HOST 'postgres', DATABASE 'shop', USER 'shop', PASSWORD SECRET shop_password);
CREATE SOURCE shop_source FROM POSTGRES CONNECTION shop (PUBLICATION 'shop') FOR ALL TABLES;

CREATE CONNECTION broker TO KAFKA (BROKER 'kafka:9092', SECURITY PROTOCOL = 'PLAINTEXT');
CREATE SOURCE clicks (product int, at timestamptz) FROM KAFKA CONNECTION broker (TOPIC 'clicks')
    FORMAT JSON;

CREATE MATERIALIZED VIEW interest AS
    SELECT p.name, count(DISTINCT o.id) AS orders, count(DISTINCT c.at) AS clicks
    FROM products p LEFT JOIN orders o ON o.product = p.id LEFT JOIN clicks c ON c.product = p.id
    GROUP BY p.name;
