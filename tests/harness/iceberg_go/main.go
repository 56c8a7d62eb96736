// Reads a table of a REST catalog with iceberg-go: its rows go to standard output, as an Arrow stream.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/catalog/rest"
	_ "github.com/apache/iceberg-go/io"
	"github.com/apache/iceberg-go/table"
)

// Arguments: the catalog's address, a warehouse, a table's name with dots, and a condition in Iceberg's JSON or nothing.
func main() {
	if err := read(os.Args[1], os.Args[2], strings.Split(os.Args[3], "."), os.Args[4]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func read(address, warehouse string, name table.Identifier, condition string) error {
	ctx := context.Background()
	catalog, err := rest.NewCatalog(ctx, "live", address, rest.WithWarehouseLocation(warehouse))
	if err != nil {
		return err
	}
	loaded, err := catalog.LoadTable(ctx, name)
	if err != nil {
		return err
	}
	var options []table.ScanOption
	if condition != "" {
		expression, err := iceberg.ParseExpr([]byte(condition), loaded.Schema())
		if err != nil {
			return err
		}
		options = append(options, table.WithRowFilter(expression))
	}
	schema, batches, err := loaded.Scan(options...).ToArrowRecords(ctx)
	if err != nil {
		return err
	}
	writer := ipc.NewWriter(os.Stdout, ipc.WithSchema(schema))
	for batch, err := range batches {
		if err != nil {
			return err
		}
		if err := writer.Write(batch); err != nil {
			return err
		}
	}
	return writer.Close()
}
