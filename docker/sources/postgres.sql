-- A shop, whose tables foreshore may read by logical replication.
CREATE TABLE products (id int PRIMARY KEY, name text NOT NULL, price numeric(10, 2) NOT NULL);
CREATE TABLE orders (id int PRIMARY KEY, product int NOT NULL REFERENCES products, quantity int NOT NULL);
ALTER TABLE products REPLICA IDENTITY FULL;
ALTER TABLE orders REPLICA IDENTITY FULL;
CREATE PUBLICATION shop FOR TABLE products, orders;
INSERT INTO products VALUES (1, 'tea', 3.50), (2, 'rice', 2.20);
INSERT INTO orders VALUES (1, 1, 2), (2, 2, 5), (3, 1, 1);
